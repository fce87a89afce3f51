package provoke

// IOController is what the controller of block I/O is called on this machine: it has
// another name in each version.
func IOController() string {
	if Hierarchy("blkio") != "" {
		return "blkio"
	}
	return "io"
}
