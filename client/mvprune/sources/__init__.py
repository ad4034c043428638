"""Inputs of jobs: folders, files, buckets and names on the Hugging Face hub, looked into without loading."""
