package tailcam

// counter is not used: the vDSO costs little more than the counter.
func counter() uint64 { return 0 }
