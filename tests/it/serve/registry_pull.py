"""Pulls an artifact with oras: HOST:PORT NAME:TAG TOKEN DIRECTORY."""

import sys
from importlib.metadata import version

import oras.client

host, reference, token, directory = sys.argv[1:]
client = oras.client.OrasClient(hostname=host, insecure=True, auth_backend="basic")
client.auth.set_basic_auth("me", token)
files = client.pull(target=f"{host}/{reference}", outdir=directory)
tags = client.get_tags(f"{host}/{reference}")
assert "main" in tags, tags
print(f"oras {version('oras')} pulled {len(files)} files")
