"""Creates a bucket, unless it is there: python bucket.py NAME. Credentials come from boto3's usual places."""

import sys

import boto3
from botocore.exceptions import BotoCoreError, ClientError

_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


def main(name: str) -> int:
    """Returns the exit code."""
    try:
        boto3.client("s3").create_bucket(Bucket=name)
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") in _THERE:
            print(f"bucket {name} is there already: nothing to do")
            return 0
        print(f"error: bucket {name} cannot be created: {error}", file=sys.stderr)
        return 1
    print(f"created bucket {name}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: bucket.py NAME")
    sys.exit(main(sys.argv[1]))
