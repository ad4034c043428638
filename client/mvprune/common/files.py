"""Paths and small text files as users write them; files with a secret; files that others may read while they are
written."""

from __future__ import annotations

import codecs
import os
from pathlib import Path


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with ~ or ~user replaced by that home; where there is no such home it is a name like any other."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path's own raises then)


def decode_text(content: bytes) -> str:
    """The text of a small file, without the byte order mark that Windows writes before UTF-8. Raises ValueError, which
    does not show the content."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        raise ValueError(f"{'text in UTF-16' if is_utf16 else 'not text in UTF-8'}: save it as UTF-8") from None


def read_secret(path: Path) -> str:
    """The secret in a file, without the white space around it. Raises ValueError, which does not show it."""
    try:
        secret = decode_text(path.read_bytes()).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"must be a file that can be read, got {str(path)!r} ({reason})") from None
    if not secret or not secret.isprintable():
        raise ValueError(f"must be a file with one line, got {str(path)!r} with {'several' if secret else 'none'}")
    return secret


def replace_text(path: Path, text: str) -> None:
    """Writes a file for its owner's eyes alone (mode 0600), wholly or not at all, and makes its folder.

    Raises:
        OSError: it cannot be written; what was there stays, and nothing else is left.
    """
    import tempfile  # slow to import

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".writing-") as folder:
        draft = Path(folder) / path.name
        draft.touch(mode=0o600)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
