package symbols

import (
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestUnwindCacheHangs: nobody waits for long for a file that cannot be read, once it is
// known; it is there when its file system answers.
func TestUnwindCacheHangs(t *testing.T) {
	var c unwindCache
	f, err := os.Open("/proc/self/exe")
	assert.NilError(t, err)
	defer f.Close()
	answers := make(chan struct{})
	reads := 0
	load := func(own *os.File) (*unwindFile, error) {
		reads++
		<-answers
		return newUnwindFile(own)
	}
	id := fileID{dev: 1, ino: 2}
	for range 3 {
		_, err = c.get(id, f, load)
		assert.ErrorIs(t, err, errBusy)
	}
	close(answers)
	var u *unwindFile
	for end := time.Now().Add(20 * time.Second); u == nil; time.Sleep(time.Millisecond) {
		u = c.peek(id)
		assert.Assert(t, time.Now().Before(end), "it is not read")
	}
	c.put(u)
	assert.Check(t, reads == 1 && len(c.loading) == 0 && u.users == 0, "read %d times; %+v", reads, u)
}
