"""Laws of the quantisers that HEX is compared with."""
