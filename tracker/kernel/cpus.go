package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PresentCPUs is how many CPUs have a ring of plain memory: those that there
// are, though some may be offline, and those with numbers in between.
func PresentCPUs() (int, error) {
	n, err := highestCPU("present")
	return n + 1, err
}

// onlineCPUs are the numbers of those that are online.
func onlineCPUs() (map[int]bool, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("list CPUs: %w", err)
	}
	list := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") { // such as 0-3,8-11
		first, last, ok := strings.Cut(part, "-")
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, bad := strconv.Atoi(last)
		if err != nil || bad != nil || to-from > maxCPUs {
			return nil, fmt.Errorf("list CPUs: unexpected form %.60q", b)
		}
		for n := from; n <= to; n++ {
			list[n] = true
		}
	}
	return list, nil
}

// maxCPUs bounds what is believed of their number.
const maxCPUs = 1 << 16

// highestCPU is the highest number of a CPU that is "online", or "present": it may be offline.
func highestCPU(which string) (int, error) {
	path := "/sys/devices/system/cpu/" + which
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %w", err)
	}
	list := strings.TrimSpace(string(b)) // such as 0-3,8-11
	n, err := strconv.Atoi(list[strings.LastIndexAny(list, ",-")+1:])
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %s holds %q", path, list)
	}
	return n, nil
}
