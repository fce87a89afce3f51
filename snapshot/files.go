package snapshot

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file of a snapshot of at most most bytes. Actions may write
// into a snapshot's directory, and a snapshot may come from anywhere: it
// neither follows a link nor waits on a pipe.
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return data, nil
}
