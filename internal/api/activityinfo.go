package api

import (
	"context"
	"net/http"
	"time"
)

// ActivitiesInfo is what is known of activities. What programs chose, names and texts, may
// be any bytes: clean it before it is shown.
type ActivitiesInfo struct {
	Processes int            `json:"processes"`  // that have opened
	LiveCount int            `json:"live_count"` // of all; Live has the oldest ones if there are too many
	Live      []ActivityInfo `json:"live"`       // the oldest first
	// Ended are the latest and the slowest ones of each name, the latest first: a bounded
	// number of Count.
	Ended []ActivityInfo   `json:"ended"`
	Names []ActivityTotals `json:"names"`

	Declared []DeclaredInfo `json:"declared,omitempty"` // by rules

	Shared []SharedInfo `json:"shared,omitempty"` // of processes that are there

	Count  uint64 `json:"count"`  // seen to end since the daemon started
	Missed uint64 `json:"missed"` // ended between two looks at them: their tokens were used again
	// IntervalNS is how often the daemon looks: less often if that would cost too much.
	IntervalNS int64 `json:"interval_ns"`
	// Maps are ids of maps in the kernel that tell which task works for which activity, by name.
	Maps map[string]uint32 `json:"maps,omitempty"`
}

// ActivityInfo is one activity.
type ActivityInfo struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Text      string    `json:"text,omitempty"`
	Value     uint64    `json:"value"` // the program's number
	Live      bool      `json:"live,omitempty"`
	Begun     time.Time `json:"begun"` // UTC
	ElapsedNS int64     `json:"elapsed_ns"`
	PID       int       `json:"pid"`
	UID       int       `json:"uid"`
	Comm      string    `json:"comm"`
	Cgroup    string    `json:"cgroup,omitempty"`
	Unit      string    `json:"unit,omitempty"`
	Container string    `json:"container,omitempty"` // its name, or its id
	Pod       string    `json:"pod,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	SpanID    string    `json:"span_id,omitempty"`
	// Attributes are those that the program has set, and of contexts that its threads published.
	Attributes map[string]string `json:"attributes,omitempty"`
	Threads    []int             `json:"threads,omitempty"` // seen to carry it, as their process sees them
	Values     map[string]uint64 `json:"values"`            // of its account, those that are not 0
}

// DeclaredInfo is what became of the activities that a rule declares, since its hooks are
// attached. Only those of Count are in totals.
type DeclaredInfo struct {
	Rule     string `json:"rule"`
	Name     string `json:"name"`
	Count    uint64 `json:"count"`    // that ended
	Replaced uint64 `json:"replaced"` // another one began before their end was seen
	Nested   uint64 `json:"nested"`   // not begun: the thread worked for one already
	Refused  uint64 `json:"refused"`  // not begun: no slot was free, or the process has tokens of its own
	Lost     uint64 `json:"lost"`     // slow ones that are not remembered, as there were too many at once
}

// SharedInfo is what is known of a process, and not of which of its activities: never guessed.
// PID 0, and no names: of all programs together whose activities rules declare.
type SharedInfo struct {
	PID       int    `json:"pid"`
	UID       int    `json:"uid"`
	Comm      string `json:"comm"`
	Unit      string `json:"unit,omitempty"`
	Container string `json:"container,omitempty"` // its name, or its id
	Pod       string `json:"pod,omitempty"`
	// MachineNS is what interrupts and softirqs took on top of its threads, with group
	// interrupts. It is in the CPU time of activities, too.
	MachineNS uint64            `json:"machine_ns"`
	Late      uint64            `json:"late"`   // what was to be credited to activities that had ended
	Values    map[string]uint64 `json:"values"` // as of activities, those that are not 0
}

// ActivityTotals are all activities of one name and user that ended.
type ActivityTotals struct {
	Name    string            `json:"name"`
	UID     int               `json:"uid"` // -1: of several users, and of all names that are too many
	Count   uint64            `json:"count"`
	P50NS   uint64            `json:"p50_ns"` // of the time from begin to end
	P90NS   uint64            `json:"p90_ns"`
	P99NS   uint64            `json:"p99_ns"`
	P999NS  uint64            `json:"p999_ns"`
	MaxNS   uint64            `json:"max_ns"`
	SumNS   uint64            `json:"sum_ns"`
	Values  map[string]uint64 `json:"values"` // sums
	Buckets []BucketInfo      `json:"buckets"`
}

func (s *server) activities(w http.ResponseWriter, r *http.Request) {
	info, err := s.backend.Activities(r.URL.Query().Get("ended") != "0")
	if err != nil {
		s.fail(w, http.StatusServiceUnavailable, err)
		return
	}
	info.Live, info.Ended, info.Names = noNull(info.Live), noNull(info.Ended), noNull(info.Names)
	s.reply(w, http.StatusOK, info)
}

// Activities returns what is known of activities; without ended, only sums of those that
// have ended.
func (c *Client) Activities(ctx context.Context, ended bool) (*ActivitiesInfo, error) {
	path := "/v1/activities"
	if !ended {
		path += "?ended=0"
	}
	return get[*ActivitiesInfo](ctx, c, path)
}
