"""Connect processes of one host: frames, start modes, shared memory."""
