"""A file's name or first bytes in; its content type, or in words why it is not text, out. Opens nothing.

A name decides first, because a scan of 100,000 files must not open them; the bytes decide when the file is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_core.models import ContentType

# Version control, and trees that a package manager or interpreter can make again. At any depth, as file or directory.
ALWAYS_IGNORED_NAMES = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".DS_Store", "Thumbs.db"}
)
# What editors leave beside a file while it is open: half-written copies of text that is in the scan anyway.
_EDITOR_PREFIXES = (".#", "~$", ".~lock.", "._")
_EDITOR_SUFFIXES = ("~", ".swp", ".swo", ".swx", ".crdownload", ".part")

_TYPES: Mapping[ContentType, str] = {
    ContentType.MARKDOWN: "md markdown mkd mdown mdx qmd rmd",
    ContentType.HTML: "html htm xhtml",
    ContentType.JSON: "json jsonl ndjson geojson jsonc webmanifest",
    ContentType.RST: "rst rest",
    ContentType.CSV: "csv tsv",
    ContentType.CODE: (
        "asm awk bash bat bicep c cc cjs clj cljs cmake cmd coffee cpp cs css cxx d dart el elm erl ex exs f90 fish fs "
        "go gradle graphql groovy h hcl hh hpp hrl hs hxx ini ipynb java jl js jsx kt kts less lisp lua m mjs mk ml "
        "mli mm mts nim nix pas php pl pm proto ps1 py pyi pyw pyx r rb rego rkt rs sass scala scm scss sh sol sql "
        "svelte swift tcl tf tfvars toml ts tsx v vb vhd vim vue xml xsd xsl xslt yaml yml zig zsh cfg conf properties"
    ),
}
_TYPE_OF_EXTENSION = {extension: kind for kind, listed in _TYPES.items() for extension in listed.split()}
_CODE_NAMES = frozenset(
    {"dockerfile", "containerfile", "makefile", "gnumakefile", "jenkinsfile", "rakefile", "gemfile", "vagrantfile"}
    | {"procfile", "justfile", "cmakelists.txt", "build.bazel", "workspace.bazel", "meson.build"}
)

_NOT_TEXT: Mapping[str, str] = {
    "picture": (
        "png jpg jpeg jpe gif webp bmp tif tiff ico icns heic heif avif jxl svg svgz psd ai eps xcf cr2 nef dng"
    ),
    "archive": (
        "zip tar gz tgz bz2 tbz2 xz txz zst lz4 lzma 7z rar jar war ear whl egg deb rpm apk dmg iso cab cpio br crate"
    ),
    "sound": "mp3 wav flac ogg oga opus m4a aac wma aiff aif mid midi",
    "video": "mp4 m4v mov avi mkv webm wmv flv mpg mpeg ogv 3gp",
    "font": "ttf otf woff woff2 eot ttc pfb",
    "office document": "doc docx docm dot dotx xls xlsx xlsm xlsb ppt pptx pptm odt ods odp odg rtf pages numbers",
    "document that is laid out for print": "pdf ps djvu xps",
    "electronic book": "epub mobi azw azw3",
    "program or library": "exe dll so dylib a lib o obj ko msi class pyc pyo pyd wasm elc beam bin nexe",
    "database": "db sqlite sqlite3 db3 mdb accdb wt ldb dbf",
    "data file": (
        "parquet feather arrow orc avro npy npz h5 hdf5 nc mat pkl pickle joblib pt pth onnx safetensors gguf tflite "
        "rds rdata sav dta"
    ),
    "key store": "p12 pfx jks keystore kdbx gpg pgp der",
    "model or map": "stl glb gltf fbx blend dwg shp pbf mbtiles",
}
_NOUN_OF_EXTENSION = {extension: noun for noun, listed in _NOT_TEXT.items() for extension in listed.split()}
_SPOKEN_WITH_AN = frozenset("aefhilmnorsx")

# Each begins with, or contains, a byte that no text has there; or is a format's name that no text begins with.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "PNG picture"),
    (0, b"\xff\xd8\xff", "JPEG picture"),
    (0, b"GIF87a", "GIF picture"),
    (0, b"GIF89a", "GIF picture"),
    (0, b"II*\x00", "TIFF picture"),
    (0, b"MM\x00*", "TIFF picture"),
    (0, b"\x00\x00\x01\x00", "icon"),
    (8, b"WEBPVP8", "WebP picture"),
    (8, b"WAVEfmt", "WAV sound"),
    (8, b"AVI LIST", "AVI video"),
    (0, b"\x1aE\xdf\xa3", "Matroska video"),
    (0, b"OggS\x00", "Ogg sound"),
    (0, b"fLaC\x00", "FLAC sound"),
    (0, b"ID3\x02", "MP3 sound"),
    (0, b"ID3\x03", "MP3 sound"),
    (0, b"ID3\x04", "MP3 sound"),
    (0, b"%PDF-", "PDF document"),
    (0, b"PK\x03\x04", "ZIP archive or office document"),
    (0, b"PK\x05\x06", "ZIP archive"),
    (0, b"\x1f\x8b\x08", "gzip archive"),
    (0, b"BZh91AY&SY", "bzip2 archive"),
    (0, b"\xfd7zXZ\x00", "xz archive"),
    (0, b"\x28\xb5\x2f\xfd", "zstd archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (0, b"Rar!\x1a\x07", "RAR archive"),
    (257, b"ustar", "tar archive"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Microsoft Office document"),
    (0, b"{\\rtf1", "RTF document"),
    (0, b"\x7fELF", "ELF program"),
    (0, b"MZ\x90\x00", "Windows program"),
    (0, b"\xfe\xed\xfa", "Mach-O program"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (0, b"\x00asm", "WebAssembly program"),
    (0, b"SQLite format 3\x00", "SQLite database"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5 file"),
    (0, b"PAR1\x15", "Parquet file"),
    (0, b"GGUF\x02\x00", "GGUF model"),
    (0, b"GGUF\x03\x00", "GGUF model"),
    (0, b"wOFF\x00\x01\x00\x00", "WOFF font"),
    (0, b"wOF2\x00\x01\x00\x00", "WOFF2 font"),
    (0, b"OTTO\x00", "OpenType font"),
    (0, b"\x00\x01\x00\x00\x00", "TrueType font"),
)


def is_always_ignored(name: str) -> bool:
    """Whether a file or directory of this name is never part of a feed. Other hidden files are like any other."""
    return (
        name in ALWAYS_IGNORED_NAMES
        or name.startswith(_EDITOR_PREFIXES)
        or name.endswith(_EDITOR_SUFFIXES)
        or (name.startswith("#") and name.endswith("#"))
    )


def content_type_of(name: str) -> ContentType:
    """The content type that a file's name means; text where it means none, because the bytes are still to be judged."""
    folded = name.lower()
    if folded in _CODE_NAMES:
        return ContentType.CODE
    return _TYPE_OF_EXTENSION.get(_extension_of(folded), ContentType.TEXT)


def explain_not_text(name: str) -> str | None:
    """Say why a file of this name is not read, as in "an .svg picture is not text"; None where it may be text."""
    extension = _extension_of(name.lower())
    noun = _NOUN_OF_EXTENSION.get(extension)
    if noun is None:
        return None
    article = "an" if extension[0] in _SPOKEN_WITH_AN else "a"
    return f"{article} .{extension} {noun} is not text"


def identify_binary(content: bytes) -> str | None:
    """Name the format that these bytes begin like, whatever the file is called; None where they begin like none."""
    for offset, magic, noun in _MAGIC:
        if content.startswith(magic, offset):
            return noun
    return None


def _extension_of(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return extension if dot and stem else ""
