"""The C++ sources of the native kernel, and how they are built."""
