"""What a job may point at: folders, files, buckets and names on the Hugging Face hub, looked into without loading."""
