"""What HEX is compared with: KIVI and GEAR, quantised caches with tricks of their own."""
