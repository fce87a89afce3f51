package api

import "time"

// CostStatus is what tailcam cost in the last 10 seconds, and what it sheds to stay
// within its budget. CPU time is a share of the time of all CPUs.
type CostStatus struct {
	CPU       float64    `json:"cpu"`
	BudgetCPU float64    `json:"budget_cpu"` // 0: no budget
	CPUs      int        `json:"cpus"`
	Daemon    float64    `json:"daemon_cpu"`  // of it, the daemon's own
	Helpers   float64    `json:"helpers_cpu"` // its helpers'
	Parts     []CostPart `json:"parts"`       // what can be shed
	Measured  bool       `json:"measured"`    // prices were measured; false: they are assumed
	PriceNS   int64      `json:"price_age_ns,omitempty"`
	// PriceScale is what assumed prices are multiplied by to fit this machine, as that of
	// a context switch is; 0: nothing is known of it, or prices are measured.
	PriceScale float64 `json:"price_scale,omitempty"`

	Programs []ProgramCost `json:"programs"` // of the kernel side, by name

	MemoryBytes  uint64 `json:"memory_bytes"` // maps, daemon and helpers
	MapBytes     uint64 `json:"map_bytes"`    // maps of the kernel side alone
	BudgetMemory uint64 `json:"budget_memory_bytes"`
	HeapLimit    uint64 `json:"heap_limit_bytes,omitempty"` // of the daemon; 0: none
	CacheDrops   uint64 `json:"cache_drops"`                // times that caches were dropped

	Shed     []ShedInfo `json:"shed"` // now, in the order of shedding
	Steps    uint64     `json:"shed_steps"`
	Returns  uint64     `json:"return_steps"`
	Exceeded bool       `json:"exceeded,omitempty"` // nothing is left to shed
}

// ProgramCost is what a program of the kernel side costs, and has cost since the
// daemon started: CPU time that was computed with measured and with assumed prices.
type ProgramCost struct {
	Program    string  `json:"program"`
	CPU        float64 `json:"cpu"`      // in the last window; 0: it is detached
	Measured   bool    `json:"measured"` // the price that this is computed with
	MeasuredNS int64   `json:"measured_ns"`
	AssumedNS  int64   `json:"assumed_ns"`
}

// CostPart is what one part costs, or would cost if it were not shed.
type CostPart struct {
	Part string  `json:"part"` // "group irq", "histograms", "user stacks", "wakers", "askers", "rule NAME"
	CPU  float64 `json:"cpu"`
	Shed bool    `json:"shed,omitempty"`
}

// ShedInfo is a part that is shed.
type ShedInfo struct {
	Part   string    `json:"part"`
	Since  time.Time `json:"since"`
	WaitNS int64     `json:"wait_ns"` // for which it must fit into the budget before it comes back
	Times  int       `json:"times"`   // that it was shed since the daemon started
	Why    string    `json:"why"`
}
