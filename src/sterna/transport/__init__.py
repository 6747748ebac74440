"""The communication layer: how calls reach a host, whatever carries them."""
