#!/bin/sh
# Makes the secrets of compose.yaml in the folder secrets/ beside this file. Files that are there are kept.
set -eu
folder=${1:-"$(dirname "$0")/secrets"}
umask 077
mkdir -p "$folder"
cd "$folder"

random() { head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

# Each group is written together: its files hold the same secret.
if [ ! -e database_url ]; then
    password=$(random)
    printf '%s\n' "$password" >postgres_password
    printf 'postgresql://mvprune:%s@postgres/mvprune\n' "$password" >database_url
fi
if [ ! -e aws_credentials ]; then
    id=$(random) key=$(random)
    printf '{"identities": [{"name": "mvprune", "credentials": [{"accessKey": "%s", "secretKey": "%s"}], "actions": ["Admin", "Read", "List", "Tagging", "Write"]}]}\n' \
        "$id" "$key" >s3_config
    printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$id" "$key" >aws_credentials
fi
[ -e ray_token ] || printf '%s\n' "$(random)" >ray_token
[ -e server_key ] || printf '%s%s\n' "$(random)" "$(random)" >server_key

# Containers read the files as other users. The folder itself is closed to others on this machine.
chmod 0444 postgres_password database_url s3_config aws_credentials ray_token server_key
echo "the secrets are in $PWD"
