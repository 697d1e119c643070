"""Messages and stubs, made from proto/ when the package is built."""
