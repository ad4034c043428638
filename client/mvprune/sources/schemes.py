"""How references begin that are neither a name nor a path of this machine."""

SERVER = "server:"  # server:/PATH, a path on the server
UPLOAD = "upload:"  # upload:DIGEST/NAME, what a client has sent
BUCKET = "s3://"  # s3://BUCKET/PATH
HUB = "hf://"  # hf://OWNER/NAME@REVISION, a model of the Hub at a commit, a tag or a branch
SCHEMES = (SERVER, UPLOAD, BUCKET, HUB)


def shown(ref: str) -> str:
    """A reference for people: NAME (upload DIGEST), the digest's first 12 digits, where it is one to an upload."""
    digest, _, name = ref.removeprefix(UPLOAD).partition("/")
    is_upload = ref.startswith(UPLOAD) and len(digest) == 64 and name
    return f"{name} (upload {digest[:12]})" if is_upload else ref


def model_name(ref: str) -> str:
    """The name of a model in a manifest: OWNER/NAME of hf://OWNER/NAME@REVISION, any other reference as it is."""
    return ref.removeprefix(HUB).partition("@")[0] if ref.startswith(HUB) else ref
