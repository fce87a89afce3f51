package contexts

// vector is where a thread has the memory of its modules (the DTV): where the vector's
// address is, from the thread pointer; where its length is, from its start; and the bytes
// of an entry. As in glibc's tcbhead_t and dtv_t, and musl's struct pthread.
func vector(musl bool) (at, length int32, entry uint32) {
	if musl {
		return 8, 0, 8
	}
	return 8, -16, 16
}
