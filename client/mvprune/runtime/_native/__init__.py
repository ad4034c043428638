"""The native kernel as a shared library, which client/native/build.py puts here."""
