"""An artifact as one commit of a repository of the Hugging Face Hub."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mvprune.artifact.card import CARD_FILE, base_on_hub, with_license
from mvprune.artifact.errors import needs
from mvprune.artifact.manifest import MANIFEST_FILE, ArtifactFile, Manifest, measure, read_manifest, verify
from mvprune.common.exceptions import HubUnreachable, PushFailed
from mvprune.publish.hub import write_hub_folder

_QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_MAIN = "main"
# What of an older artifact, or of another form of this one, must not stay beside the new files.
_REPLACED = ("*.safetensors", "*.json", "*.bin", "*.model", "*.txt", "*.html", "*.py")


@dataclass(frozen=True)
class PushedCommit:
    """A commit of a repository of the Hub.

    Attributes:
        repository: owner/name.
        url: of the commit; of the pull request, if one was made.
        commit: its digest; "" for a pull request that was there.
        digest: the artifact's.
        new: False if it was the newest commit before, or an open pull request; nothing is then sent.
    """

    repository: str
    url: str
    commit: str
    digest: str
    new: bool


def push_to_hub(
    artifact: str | Path,
    repository: str,
    *,
    private: bool | None = None,
    revision: str = "",
    create_pr: bool = False,
    dense: bool = False,
    base: str | Path | None = None,
    license: str = "",
) -> PushedCommit:
    """Makes a commit of an artifact: the files of `write_hub_folder`, in place of those of an older one. Pushing it
    again while it is the newest commit sends nothing.

    The Hub is that of HF_ENDPOINT, the token that of HF_TOKEN or of `hf auth login`.

    Args:
        artifact: the artifact's folder; it is verified.
        repository: owner/name; it is created if it does not exist, except for a pull request.
        private: whether a new repository is private; None: as the owner's settings say.
        revision: branch, which is created if it does not exist; default: main.
        create_pr: make a pull request in place of a commit on main.
        dense, base: as of `write_hub_folder`.
        license: of the model, an id such as apache-2.0; default: that of the base model on the Hub, where it has one.

    Raises:
        ArtifactError: the artifact is not valid, or it is a delta and `dense` is false.
        MissingExtra: a package is missing; the message says how to install it.
        HubUnreachable: no server answers.
        PushFailed: the Hub refused it.
    """
    manifest = verify(artifact)
    title = f"Artifact {manifest.digest}, {'dense' if dense else 'sparse'}"
    with _hub() as hub, tempfile.TemporaryDirectory(prefix="mvprune-hub-") as scratch:
        api = hub.HfApi(library_name="mvprune")
        if not create_pr:
            api.create_repo(repository, private=private, exist_ok=True)
            if revision:
                api.create_branch(repository, branch=revision, exist_ok=True)
        head = api.list_repo_commits(repository, revision=revision or None)[0]
        if head.title == title:
            url = f"{api.endpoint}/{repository}/commit/{head.commit_id}"
            return PushedCommit(repository, url, head.commit_id, manifest.digest, new=False)
        if create_pr and (url := _open_request(api, repository, title)):
            return PushedCommit(repository, url, "", manifest.digest, new=False)
        folder = Path(scratch) / "repository"
        write_hub_folder(artifact, folder, dense=dense, base=base)
        _license(folder, license or _license_of_base(hub, api, manifest))
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        there = api.list_repo_files(repository, revision=head.commit_id)
        operations: list[Any] = [hub.CommitOperationAdd(name, folder / name) for name in files]
        old = [name for name in there if name not in files and any(fnmatch(name, one) for one in _REPLACED)]
        operations += map(hub.CommitOperationDelete, old)
        made = api.create_commit(
            repository,
            operations,
            commit_message=title,
            revision=revision or None,
            create_pr=create_pr,
            parent_commit=head.commit_id,
        )
        return PushedCommit(repository, str(made.pr_url or made.commit_url), made.oid, manifest.digest, new=True)


@contextmanager
def _hub() -> Iterator[Any]:
    """The package huggingface_hub, quiet. Its errors are ours."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    with needs("pushing to the Hub", "hub"):
        import huggingface_hub
        from huggingface_hub import errors
    # Of the HTTP library that it is built on, whichever that is.
    transport_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]
    try:
        yield huggingface_hub
    except errors.OfflineModeIsEnabled:
        raise HubUnreachable("the Hub: HF_HUB_OFFLINE is set; unset it") from None
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.LocalTokenNotFoundError) as error:
        raise PushFailed(f"the Hub: {_first_line(error)}{_remedy(error)}") from error
    except (transport_error, ConnectionError) as error:
        raise HubUnreachable(f"the Hub: {_first_line(error)}") from error


def _remedy(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return "; HF_TOKEN must be a token that may write to the repository, or `hf auth login` sets one"
    return "; it has changed meanwhile: push again" if status == 412 else ""


def _open_request(api: Any, repository: str, title: str) -> str:
    """The address of the open pull request with a title, "" if there is none."""
    found = api.get_repo_discussions(repository, discussion_type="pull_request", discussion_status="open")
    return next((str(one.url) for one in found if one.title == title), "")


def _license_of_base(hub: Any, api: Any, manifest: Manifest) -> str:
    """The license of the base model on the Hub, "" if it is not known."""
    base = base_on_hub(manifest)
    if not base:
        return ""
    try:
        card = api.model_info(base, revision=manifest.model.revision or None).card_data
    except hub.errors.HfHubHTTPError:  # gone, or not for this token
        return ""
    found = card.license if card else ""
    return found if isinstance(found, str) else ""


def _license(folder: Path, license: str) -> None:
    """Puts the license into the card; the manifest, if there is one, has the digest of that card."""
    if not license:
        return
    card = folder / CARD_FILE
    card.write_text(with_license(card.read_text(encoding="utf-8"), license), encoding="utf-8")
    if (folder / MANIFEST_FILE).exists():
        manifest, (size, sha256) = read_manifest(folder), measure(card)
        files = [
            ArtifactFile(one.path, size, sha256, one.media_type) if one.path == CARD_FILE else one
            for one in manifest.files
        ]
        (folder / MANIFEST_FILE).write_bytes(replace(manifest, files=tuple(files)).to_json())


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]
