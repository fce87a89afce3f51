package tailcam

// counter reads the time stamp counter.
func counter() uint64
