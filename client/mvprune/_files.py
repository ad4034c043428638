"""Files that others may read while they are written."""

from __future__ import annotations

from pathlib import Path


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
