package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestCheckLimits(t *testing.T) {
	for _, c := range []struct {
		files, space uint64
		limited      int
		says         string
	}{
		{1 << 20, unix.RLIM_INFINITY, 0, ""},
		{minFiles, minSpace, 0, ""},
		{64, unix.RLIM_INFINITY, 0, "LimitNOFILE="},
		{1024, 1 << 30, 1, ""},
	} {
		limited, err := checkLimits(c.files, c.space)
		assert.Check(t, (err != nil) == (c.says != "") && (err == nil || strings.Contains(err.Error(), c.says)) &&
			len(limited) == c.limited, "%+v: got %q, %v", c, limited, err)
	}
}

func TestAdviseDescriptors(t *testing.T) {
	err := adviseDescriptors(fmt.Errorf("create map: %w", unix.EMFILE))
	assert.Check(t, strings.Contains(err.Error(), "LimitNOFILE="), "%v", err)
	assert.Check(t, adviseDescriptors(nil))
}
