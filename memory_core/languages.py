"""A document's names in, the programming language they mean out, "" where they mean none. Pure; reads no content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from memory_core.models import ContentType

# A name of a language is lower case without signs: it becomes part of a document's recipe.
_EXTENSIONS: Final[Mapping[str, str]] = {
    "asm": "asm s",
    "awk": "awk",
    "bash": "bash bats ksh sh zsh",
    "batch": "bat cmd",
    "bicep": "bicep",
    "c": "c",
    "clojure": "clj cljc cljs",
    "cmake": "cmake",
    "coffeescript": "coffee",
    "cpp": "c++ cc cpp cxx h h++ hh hpp hxx inl ipp tpp",  # what is legal C is nearly always legal C++ too
    "crystal": "cr",
    "csharp": "cs csx",
    "css": "css",
    "cython": "pxd pyx",
    "d": "d",
    "dart": "dart",
    "elixir": "ex exs",
    "elm": "elm",
    "erlang": "erl hrl",
    "fish": "fish",
    "fortran": "f f03 f08 f90 f95",
    "fsharp": "fs fsi fsx",
    "go": "go",
    "graphql": "gql graphql",
    "groovy": "gradle groovy",
    "haskell": "hs",
    "hcl": "hcl tf tfvars",
    "ini": "cfg conf ini properties",
    "java": "java",
    "javascript": "cjs js jsx mjs",
    "julia": "jl",
    "kotlin": "kt kts",
    "less": "less",
    "lisp": "cl el lisp rkt scm",
    "lua": "lua",
    "makefile": "mk",
    "nim": "nim",
    "nix": "nix",
    "objectivec": "m mm",
    "ocaml": "ml mli",
    "pascal": "pas",
    "perl": "pl pm",
    "php": "php phtml",
    "powershell": "ps1 psm1",
    "prolog": "pro",
    "protobuf": "proto",
    "python": "py pyi pyw",
    "r": "r",
    "rego": "rego",
    "ruby": "gemspec podspec rake rb ru",
    "rust": "rs",
    "sass": "sass scss",
    "scala": "sbt sc scala",
    "solidity": "sol",
    "sql": "sql",
    "svelte": "svelte",
    "swift": "swift",
    "tcl": "tcl",
    "toml": "toml",
    "tsx": "tsx",
    "typescript": "cts mts ts",
    "verilog": "sv v",
    "vhdl": "vhd vhdl",
    "vim": "vim",
    "visualbasic": "vb",
    "vue": "vue",
    "xml": "xml xsd xsl xslt",
    "yaml": "yaml yml",
    "zig": "zig",
}
_NAMES: Final[Mapping[str, str]] = {
    "cmake": "cmakelists.txt",
    "dockerfile": "containerfile dockerfile",
    "groovy": "jenkinsfile",
    "makefile": "gnumakefile makefile",
    "python": "sconscript sconstruct wscript",
    "ruby": "brewfile gemfile podfile rakefile vagrantfile",
    "starlark": "build.bazel workspace.bazel",
}
_LANGUAGE_OF_EXTENSION = {one: language for language, listed in _EXTENSIONS.items() for one in listed.split()}
_LANGUAGE_OF_NAME = {one: language for language, listed in _NAMES.items() for one in listed.split()}
# What follows a path in a uri.
_QUERY = re.compile(r"[?#]")
_SEPARATORS = re.compile(r"[/\\:]")


def language_of(name: str) -> str:
    """The language that a file name, path, uri, source id or title means by how it ends, "" where it means none."""
    last = _SEPARATORS.split(_QUERY.split(name.strip(), maxsplit=1)[0].rstrip("/"))[-1].lower()
    if last in _LANGUAGE_OF_NAME:
        return _LANGUAGE_OF_NAME[last]
    stem, _, extension = last.rpartition(".")
    return _LANGUAGE_OF_EXTENSION.get(extension, "") if stem else ""


def choose_language(content_type: ContentType, *, uri: str | None, source_id: str, title: str) -> str:
    """The language of a document, as its stored names say: the first that means one. Only code has a language."""
    if content_type is not ContentType.CODE:
        return ""
    return next((found for name in (uri or "", source_id, title) if (found := language_of(name))), "")
