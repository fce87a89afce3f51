package budget

import "time"

// Driver is a counter that grows with the runs of programs, and that is there
// without tailcam: most are lines of /proc/stat.
type Driver int

// Drivers.
const (
	Switches   Driver = iota // ctxt
	Softirqs                 // softirq
	Interrupts               // intr
	Forks                    // processes
	Requests                 // of disks, completed
	drivers

	none Driver = -1 // nothing drives it that is counted: it runs as often as when it was measured
)

// Events are the counters of all drivers since some start.
type Events [drivers]uint64

// Run is what the kernel has counted of a program for a while.
type Run struct {
	Name string
	Runs uint64
	Time time.Duration
}

// price is what a program costs.
type price struct {
	own    float64 // ns per run, without its record
	record float64 // ns per run, if others need the program too; else 0
	light  float64 // ns per run, while what the program has Less of is shed
	driver Driver
	per    float64 // runs per event of the driver, or per second
	loose  bool    // the driver says little of how often it runs

	measured bool // own and record were
}

// total is the price of a run with its record.
func (p *price) total() float64 { return p.own + p.record }

// recordShare is the part of a program's price that leaving out its record saves:
// of 340 ns that a switch took with everything, 0 to 50 were measured under hackbench.
const recordShare = 0.15

// delayPrice is that of counting a delay in a histogram, in ns.
const delayPrice = 20

// reference is the machine of the assumed prices when they were measured.
var reference = Speed{ClockNS: 40, WorkNS: 4.7}

// assumed are the prices and rates until they are measured: the least of twelve rounds
// of `make bench-service ARGS=-prices` with seven loads (docs/benchmarks.md), so with
// warm caches; gross of the statistics' own clock reads, which is about what entering
// the program costs. What did not run there has an estimate.
var assumed = map[string]price{
	"sched_switch":       {own: 280, light: 80, driver: Switches, per: 1},
	"sched_waking":       {own: 220, driver: Switches, per: 0.6},
	"sched_wakeup_new":   {own: 1300, driver: Forks, per: 1},
	"sched_migrate_task": {own: 370, driver: Switches, per: 0.1},

	"sched_process_fork": {own: 1500, driver: Forks, per: 1},
	"sched_process_exec": {own: 590, driver: Forks, per: 0.5},
	"sched_process_exit": {own: 2300, driver: Forks, per: 1},
	"task_rename":        {own: 1600, driver: Forks, per: 0.5},

	"sys_enter": {own: 90, driver: Switches, per: 5, loose: true},
	"sys_exit":  {own: 90, driver: Switches, per: 5, loose: true},

	"block_rq_insert":   {own: 830, driver: Requests, per: 1},
	"block_rq_issue":    {own: 340, driver: Requests, per: 1},
	"block_rq_complete": {own: 720, light: 145, driver: Requests, per: 1},
	"block_rq_merge":    {own: 100, driver: Requests, per: 0.1},
	"block_rq_requeue":  {own: 100, driver: Requests, per: 0},

	"irq_handler_entry":    {own: 260, driver: Interrupts, per: 0.3},
	"irq_handler_exit":     {own: 340, driver: Interrupts, per: 0.3},
	"softirq_entry":        {own: 190, driver: Softirqs, per: 1},
	"softirq_exit":         {own: 210, driver: Softirqs, per: 1},
	"softirq_raise":        {own: 120, driver: Softirqs, per: 1},
	"hrtimer_expire_entry": {own: 490, driver: Interrupts, per: 0.5},
	"hrtimer_expire_exit":  {own: 320, driver: Interrupts, per: 0.5},
	"timer_expire_entry":   {own: 430, driver: Softirqs, per: 0.1, loose: true},
	"timer_expire_exit":    {own: 320, driver: Softirqs, per: 0.1, loose: true},

	"workqueue_queue_work":    {own: 380, driver: Switches, per: 0.05, loose: true},
	"workqueue_execute_start": {own: 240, driver: Switches, per: 0.05, loose: true},
	"workqueue_execute_end":   {own: 240, driver: Switches, per: 0.05, loose: true},

	"wait_stacks": {own: 2000, driver: Switches, per: 0.01, loose: true},
	"run_stacks":  {own: 3500, driver: none, per: 50, loose: true},
	"sample":      {own: 2000, driver: none, per: 200, loose: true},

	"cpu_idle":          {own: 150, driver: Switches, per: 0.7, loose: true},
	"net_dev_queue":     {own: 200, driver: Softirqs, per: 0.5, loose: true},
	"netif_receive_skb": {own: 200, driver: Softirqs, per: 0.5, loose: true},
	"napi_poll":         {own: 200, driver: Softirqs, per: 0.5, loose: true},
	"contention_begin":  {own: 330, driver: Switches, per: 0.02, loose: true},
	"contention_end":    {own: 210, driver: Switches, per: 0.02, loose: true},
	"posix_lock_inode":  {own: 500, driver: Switches, per: 0, loose: true},
	"flock_lock_inode":  {own: 500, driver: Switches, per: 0, loose: true},
	"kvm_entry":         {own: 150, driver: Interrupts, per: 1, loose: true},
	"kvm_exit":          {own: 150, driver: Interrupts, per: 1, loose: true},
}

// Speed is how fast a machine runs BPF programs, in nanoseconds: a read of the clock,
// and a step of work in memory.
type Speed struct{ ClockNS, WorkNS float64 }

// Assumed prices are made to fit other machines between these factors; beyond,
// what was measured is not believed.
const leastScale, mostScale = 0.2, 50

// scale is what a price of the machine of the assumed ones is on this machine: every
// program reads the clock once, and all else goes with the work.
func (s Speed) scale(ns float64) float64 {
	if s.ClockNS <= 0 || s.WorkNS <= 0 || ns <= 0 {
		return ns
	}
	clock := min(reference.ClockNS, ns)
	scaled := clock*s.ClockNS/reference.ClockNS + (ns-clock)*s.WorkNS/reference.WorkNS
	return min(max(scaled, leastScale*ns), mostScale*ns)
}

// unknown is the price of a program that is not listed: rare ones, and those of
// declared pairs.
var unknown = price{own: 200, driver: none, loose: true}
