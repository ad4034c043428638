"""How references begin that are neither a name nor a path of this machine."""

SERVER = "server:"  # server:/PATH, a path on the server
UPLOAD = "upload:"  # upload:DIGEST/NAME, what a client has sent
BUCKET = "s3://"  # s3://BUCKET/PATH
SCHEMES = (SERVER, UPLOAD, BUCKET)


def shown(ref: str) -> str:
    """A reference for people: NAME (upload DIGEST), the digest's first 12 digits, where it is one to an upload."""
    digest, _, name = ref.removeprefix(UPLOAD).partition("/")
    is_upload = ref.startswith(UPLOAD) and len(digest) == 64 and name
    return f"{name} (upload {digest[:12]})" if is_upload else ref
