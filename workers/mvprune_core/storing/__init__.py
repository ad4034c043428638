"""What an artifact takes and how it is checked: counts, sizes, trimmed tables."""
