"""One small file of every language that has a grammar: its definitions stay whole and their names make the path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from memory_core.chunk.chunk_content import chunk_content
from memory_core.chunk.code_kinds import KINDS
from memory_core.chunk_values import ChunkOptions
from memory_core.models import ContentType
from memory_core.ports import TokenCounter

# In characters: each function of a sample fits, two of them do not.
_SIZE = 150


class _Sample(NamedTuple):
    """A file, and for a piece of a line the path of the chunk that has it."""

    language: str
    paths: Sequence[tuple[str, str]]
    text: str


_SAMPLES = (
    _Sample(
        "bash",
        [("docker build", "build_image"), ("kubectl apply", "deploy"), ("set -euo", "")],
        """\
#!/bin/bash
# Builds and deploys the application, for people and for the nightly job.
set -euo pipefail

# Builds the image of a tag.
build_image() {
  local tag="$1"
  docker build --pull --tag "registry/app:$tag" .
}

function deploy {
  build_image "$1"
  kubectl apply --filename deploy.yaml --namespace production
}
""",
    ),
    _Sample(
        "c",
        [("buffer->used = 0", "buffer_reset"), ("memcpy", "buffer_append")],
        """\
/* Bytes that grow. */
typedef struct {
    char *bytes;
    size_t used, room;
    struct chain *next_of_the_chain;
} Buffer;

/* Forgets all bytes. */
static void buffer_reset(Buffer *buffer) {
    buffer->used = 0;
    buffer->next_of_the_chain = NULL;
}

char *buffer_append(Buffer *buffer, const char *bytes, size_t count)
{
    return memcpy(buffer->bytes + buffer->used, bytes, count);
}
""",
    ),
    _Sample(
        "cpp",
        [("return area_", "geometry > Square > area"), ("area_ *= factor", "geometry > Square > scale")],
        """\
#pragma once
namespace geometry {

class Square : public Shape {
public:
  // What the square covers, in the unit of its sides.
  double area() const override {
    return area_ * unit_of_the_sides();
  }

private:
  double area_ = 0;
};

// Makes the square larger, or smaller, than it was.
void Square::scale(double factor) {
  area_ *= factor * factor;
}

}  // namespace geometry
""",
    ),
    _Sample(
        "csharp",
        [
            ("Task<Order>", "Shop.Orders > OrderService > FindAsync"),
            ("throw new", "Shop.Orders > OrderService > Cancel"),
        ],
        """\
namespace Shop.Orders;

public class OrderService
{
    /// <summary>Finds an order.</summary>
    [Authorize]
    public async Task<Order> FindAsync(int id)
    {
        return await _orders.FindAsync(id);
    }

    public void Cancel(Order order)
    {
        if (order.IsSent) throw new InvalidOperationException("sent");
    }
}
""",
    ),
    _Sample(
        "go",
        [("Workers int", "queue > Options"), ("q.jobs <-", "queue > Queue > Push"), ("make(chan", "queue > New")],
        """\
// Package queue runs jobs.
package queue

// Options are the settings of a queue.
type Options struct {
	Workers int
	Logger  func(format string, arguments ...any)
}

// New makes a queue that is empty.
func New(options Options) *Queue[Job] {
	return &Queue[Job]{jobs: make(chan Job, options.Workers)}
}

// Push adds a job, or waits.
func (q *Queue[T]) Push(ctx context.Context, job T) {
	select {
	case q.jobs <- job:
	}
}
""",
    ),
    _Sample(
        "java",
        [("return cache", "org.example.cache > Cache > get"), ("entries.clear", "org.example.cache > Cache > clear")],
        """\
package org.example.cache;

/** Keeps what was asked for. */
public final class Cache<K, V> {
    private final Map<K, V> entries;

    /** What is kept under the key. */
    @Override
    public V get(K key) {
        return cache.entries.getOrDefault(key, null);
    }

    void clear() {
        entries.clear();
        listeners.forEach(listener -> listener.cleared(this));
    }
}
""",
    ),
    _Sample(
        "javascript",
        [("fetch(url", "load"), ("#items.push", "Basket > add"), ("this.#items.reduce", "Basket > total")],
        """\
// Loads a page as JSON, with all its headers.
export const load = async (url) => {
  const answer = await fetch(url, { redirect: "follow" });
  return answer.json();
};

export default class Basket {
  #items = [];

  add(item) {
    log.debug("a new item is in the basket of this customer");
    this.#items.push(item);
  }

  get total() {
    return this.#items.reduce((sum, item) => sum + item.price * item.count, 0);
  }
}
""",
    ),
    _Sample(
        "kotlin",
        [
            ("users.find", "app.users > UserStore > byName"),
            ("UserStore(emptyList", "app.users > UserStore > companion"),
        ],
        """\
package app.users

/** All users. */
class UserStore(private val users: List<User>) {
    fun byName(name: String): User? {
        return users.find { it.name == name }
    }

    companion object {
        fun empty(): UserStore {
            return UserStore(emptyList())
        }
    }
}
""",
    ),
    _Sample(
        "php",
        [("->prepare(", "App\\Models > Invoice > find"), ("return $this->net", "App\\Models > Invoice > gross")],
        """\
<?php

namespace App\\Models;

/** What a customer owes. */
final class Invoice
{
    /** Reads one invoice. */
    public static function find(PDO $db, int $id): self
    {
        return $db->prepare('SELECT 1')->fetchObject(self::class);
    }

    #[Pure]
    public function gross(): float
    {
        return $this->net * (1 + self::RATE) + $this->shipping;
    }
}
""",
    ),
    _Sample(
        "python",
        [("asyncio.sleep", "Poller > wait"), ("return self._seconds", "Poller > seconds"), ("Poller(5)", "main")],
        '''\
class Poller:
    """Asks a server again and again, and waits in between for a while."""
    @property
    def seconds(self) -> float:
        """How long it waits each time."""
        return self._seconds

    # Until the next poll.
    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)


@click.command()
def main() -> None:
    """Polls until it is stopped."""
    asyncio.run(Poller(5).wait())
''',
    ),
    _Sample(
        "ruby",
        [("@items << item", "Shop > Cart > add"), ("new(JSON", "Shop > Cart > load")],
        """\
module Shop
  # What a customer wants to buy.
  class Cart < Base
    attr_reader :items

    # Puts an item into the cart.
    def add(item, count: 1)
      @items << item.times(count)
      self
    end

    def self.load(path)
      data = File.read(path, encoding: "utf-8")
      new(JSON.parse(data))
    end
  end
end
""",
    ),
    _Sample(
        "rust",
        [
            ("vec![0", "Grid > new"),
            ("write!(f", "fmt::Display for Grid"),
        ],
        """\
/// Cells in rows.
#[derive(Debug, Clone)]
pub struct Grid {
    pub width: usize,
    cells: Vec<u8>,
}

impl Grid {
    /// Makes a grid whose cells are all empty.
    pub fn new(width: usize) -> Self {
        Self { width, cells: vec![0; width * width] }
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.width)
    }
}
""",
    ),
    _Sample(
        "scala",
        [("users.get", "app.web > UserRoutes > find"), ("case _ =>", "app.web > UserRoutes > render")],
        """\
package app.web

/** The pages of users. */
final class UserRoutes(users: Map[String, User]) extends Routes {
  /** The user of that name, if there is one. */
  def find(name: String): Future[Option[User]] = {
    Future.successful(users.get(name))
  }

  def render(user: Option[User]): String = user match {
    case Some(found) => s"<p>${found.name}</p>"
    case _ => "<p>none</p>"
  }
}
""",
    ),
    _Sample(
        "tsx",
        [("onClick", "Counter"), ("<li key", "List")],
        """\
import { useState } from "react";

export function Counter({ start }: Props) {
  const [n, set] = useState(start);
  return <button onClick={() => set(n + 1)}>{n}</button>;
}

const List = ({ items }: { items: string[] }) => (
  <ul>
    {items.map((item) => <li key={item}>{item}</li>)}
  </ul>
);
""",
    ),
    _Sample(
        "typescript",
        [("done?:", "Api > Todo"), ("request<Todo>", "Api > Client > get"), ("toUpperCase", "shout")],
        """\
import { request } from "./http";

export namespace Api {
  /** One thing that is to be done, by someone, one day. */
  export interface Todo {
    id: string;
    done?: boolean;
  }

  @Injectable()
  export class Client {
    @Retry({ times: 3 })
    async get(id: string): Promise<Todo> {
      return request<Todo>("GET", `/todos/${id}`);
    }
  }
}

/** Says it louder than it was said before. */
export const shout = (text: string): string => {
  return `${text.toUpperCase()}!`;
};
""",
    ),
)


@pytest.mark.parametrize("sample", _SAMPLES, ids=[sample.language for sample in _SAMPLES])
def test_a_definition_is_whole_and_its_chunk_says_where_it_stands(sample: _Sample, char_counter: TokenCounter) -> None:
    """A function of a known language is one chunk, of whole lines, under the names of what it stands in."""
    options = ChunkOptions(size=_SIZE, minimum=1, language=sample.language)
    result = chunk_content(sample.text, ContentType.CODE, options, char_counter)
    for chunk in result.chunks:
        assert not sample.text[: chunk.char_start].rpartition("\n")[2].strip()
        assert sample.text[chunk.char_end] == "\n"
    for piece, path in sample.paths:
        (found,) = [chunk for chunk in result.chunks if piece in chunk.text]
        assert " > ".join(found.heading_path) == path


def test_every_language_has_a_sample() -> None:
    """No grammar is offered that is not tried."""
    assert [sample.language for sample in _SAMPLES] == sorted(KINDS)
