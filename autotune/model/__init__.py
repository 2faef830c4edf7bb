"""Legal configurations of a problem on a device, and a cost model that ranks them."""
