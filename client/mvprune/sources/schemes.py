"""How references begin that are neither a name nor a path of this machine."""

SERVER = "server:"  # server:/PATH, a path on the server
UPLOAD = "upload:"  # upload:DIGEST/NAME, what a client has sent
BUCKET = "s3://"  # s3://BUCKET/PATH
SCHEMES = (SERVER, UPLOAD, BUCKET)
