package pagecache

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/process"
)

// Columns of a report.
const (
	ColumnTotal   = "total" // of all
	ColumnHits    = "hits"
	ColumnMisses  = "misses"
	ColumnDirtied = "dirtied"
	ColumnEvicted = "evicted"
	ColumnRemoved = "removed"
	ColumnCached  = "cached"
	ColumnHow     = "how" // direct-reclaim and cgroup-reclaim are told apart
)

// Orders are the columns by which a report can be sorted.
var Orders = []string{ColumnTotal, ColumnHits, ColumnMisses, ColumnDirtied, ColumnEvicted, ColumnRemoved, ColumnCached}

// Ways in which pages leave the cache, by enum pagecache_how.
var ways = [abi.PagecacheHows]string{
	abi.PagecacheKswapd: "kswapd", abi.PagecacheDirectReclaim: "direct-reclaim", abi.PagecacheCgroupReclaim: "cgroup-reclaim",
	abi.PagecachePageout: "pageout", abi.PagecacheInvalidate: "invalidate", abi.PagecacheTruncate: "truncate", abi.PagecacheUnlink: "unlink",
}

// Report is what was counted. Its JSON form is stable: fields are only added.
type Report struct {
	Start      time.Time `json:"start"`
	DurationNS int64     `json:"duration_ns"`
	PageBytes  int       `json:"page_bytes"`
	// Missing says what this kernel cannot tell, and why.
	Missing []Missing `json:"missing"`
	// Counters is how many files, and how many pairs of a file and who removed pages, were told apart.
	Counters int    `json:"counters"`
	Total    Counts `json:"total"` // of all files, also those that are not listed
	// LostPages were counted for no file, as there were too many at once. They may be of any
	// file, and are part of every error_pages.
	LostPages uint64 `json:"lost_pages"`
	// MissedEvents is how often the kernel did not run a program, as it was running on that CPU.
	MissedEvents uint64 `json:"missed_events"`
	// UnattributedPages were removed, and who did it was not kept.
	UnattributedPages uint64 `json:"unattributed_pages"`
	// UnnamedPages are of files without a name, which no pattern matches.
	UnnamedPages uint64 `json:"unnamed_pages"`
	Files        []File `json:"files"` // the most first
}

// Missing is a column that this kernel cannot tell, or not all of it.
type Missing struct {
	Column string `json:"column"`
	Reason string `json:"reason"`
}

// Counts are pages. null: this kernel does not tell.
type Counts struct {
	// Hits were asked for by reads and faults and were in the cache; but not when a page was
	// asked for the first time since it was brought in.
	Hits *uint64 `json:"hits"`
	// Lookups are all pages that reads and faults asked for.
	Lookups *uint64 `json:"lookups"`
	// Misses were brought in from the disk, ahead of being asked for or not.
	Misses uint64 `json:"misses"`
	// Written were brought in by writes.
	Written *uint64 `json:"written"`
	// Dirtied were clean before.
	Dirtied *uint64 `json:"dirtied"`
	// Evicted were removed by reclaim, or because somebody asked for it.
	Evicted uint64 `json:"evicted"`
	// Removed were cut off with a part of the file, or deleted with it.
	Removed uint64 `json:"removed"`
}

// File is what was counted of one file. What is true of each count is between it and the sum
// of it and ErrorPages.
type File struct {
	// Path is as this process sees it, if Here; else in its file system; "": the file has no
	// name. ".../" stands for what is above a part that is too deep. Any bytes.
	Path string `json:"path"`
	Here bool   `json:"here"`
	// Disk is a block device, if the file is one: its metadata, mostly. "": it is none.
	Disk   string `json:"disk"`
	Device string `json:"device"` // 254:0
	Inode  uint64 `json:"inode"`
	// Generation tells files apart that have had the same inode number.
	Generation uint32 `json:"generation"`
	Counts
	// CachedPages were in the cache at the last event of the file, that is at the end.
	CachedPages uint64 `json:"cached_pages"`
	CachedBytes uint64 `json:"cached_bytes"`
	// ErrorPages is how many more pages each count may have: before the file had a counter,
	// and lost ones.
	ErrorPages uint64    `json:"error_pages"`
	RemovedBy  []Remover `json:"removed_by"` // the most first
}

// Remover is who removed pages of a file. Pages is between it and the sum of it and ErrorPages.
type Remover struct {
	How  string `json:"how"` // kswapd, direct-reclaim, cgroup-reclaim, pageout, invalidate, truncate, unlink
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// Cgroup (v2) is that of the task; Owner is that to which the pages were charged, in the
	// hierarchy of the memory controller. "": not known, or gone.
	Cgroup     string `json:"cgroup"`
	Owner      string `json:"owner"`
	Pages      uint64 `json:"pages"`
	ErrorPages uint64 `json:"error_pages"`
	// Requests are those that it removed them for, the most first, as far as it carried a token.
	Requests []Request `json:"requests,omitempty"`
}

// Report returns what has been read, sorted by one of Orders. most: how many files are listed;
// 0: all that have a counter.
func (w *Watch) Report(order string, most int) *Report {
	lost := w.counter("lost") + w.unknown
	r := &Report{
		Start: w.began, DurationNS: w.until.Sub(w.began).Nanoseconds(), PageBytes: os.Getpagesize(),
		Missing: append([]Missing{}, w.missing...), Counters: w.opts.Files, Total: w.columns(&w.total),
		LostPages: lost, MissedEvents: w.missed(), UnattributedPages: w.counter("unattributed"), UnnamedPages: w.unnamed,
		Files: []File{},
	}
	places := mounts()
	keys := map[abi.PagecacheKey]int{}
	for _, e := range w.sorted(order, most) {
		keys[e.key] = len(r.Files)
		r.Files = append(r.Files, w.file(e, places, lost))
	}
	w.addRemovers(r, keys)
	return r
}

// sorted lists the files with the most of a column.
func (w *Watch) sorted(order string, most int) []*entry[abi.PagecacheKey, file] {
	list := slices.Clone(w.files.order)
	slices.SortFunc(list, func(a, b *entry[abi.PagecacheKey, file]) int {
		return cmp.Or(cmp.Compare(of(order, b), of(order, a)), cmp.Compare(b.weight, a.weight),
			cmp.Compare(a.key.Device, b.key.Device), cmp.Compare(a.key.Inode, b.key.Inode),
			cmp.Compare(a.key.Generation, b.key.Generation))
	})
	if most > 0 && len(list) > most {
		list = list[:most]
	}
	return list
}

// of is what a file has in a column.
func of(column string, e *entry[abi.PagecacheKey, file]) uint64 {
	c := &e.value.counts
	switch column {
	case ColumnHits:
		return less(c.Lookups, c.First)
	case ColumnMisses:
		return less(c.Added, c.Written)
	case ColumnDirtied:
		return c.Dirtied
	case ColumnEvicted:
		return c.Evicted
	case ColumnRemoved:
		return c.Removed
	case ColumnCached:
		return c.Cached
	}
	return e.weight
}

// less is a-b, but not below 0: counts of one event may be read in two halves.
func less(a, b uint64) uint64 { return a - min(a, b) }

// lacks reports whether this kernel does not tell a column.
func (w *Watch) lacks(column string) bool {
	return slices.ContainsFunc(w.missing, func(m Missing) bool { return m.Column == column })
}

// columns is what is told of counts.
func (w *Watch) columns(c *abi.PagecacheCounts) Counts {
	out := Counts{Misses: less(c.Added, c.Written), Evicted: c.Evicted, Removed: c.Removed}
	if !w.lacks(ColumnHits) {
		hits, lookups := less(c.Lookups, c.First), c.Lookups
		out.Hits, out.Lookups = &hits, &lookups
	}
	if !w.lacks(ColumnDirtied) {
		written, dirtied := c.Written, c.Dirtied
		out.Written, out.Dirtied = &written, &dirtied
	}
	return out
}

func (w *Watch) file(e *entry[abi.PagecacheKey, file], places map[uint32][]mount, lost uint64) File {
	v := &e.value
	f := File{
		Device: linux.Disk(e.key.Device), Inode: e.key.Inode, Generation: e.key.Generation, Counts: w.columns(&v.counts),
		CachedPages: v.counts.Cached, CachedBytes: v.counts.Cached * uint64(os.Getpagesize()),
		ErrorPages: e.excess + lost, RemovedBy: []Remover{},
	}
	if !v.name.found {
		v.name = w.nameOf(e.key) // it may have come since
	}
	switch {
	case v.name.disk:
		f.Disk = cmp.Or(linux.DiskName(uint32(e.key.Inode)), linux.Disk(uint32(e.key.Inode)))
	case v.name.known():
		f.Path, f.Here = pathOf(&v.name, places[e.key.Device])
	}
	return f
}

// addRemovers adds to the files of a report who removed their pages.
func (w *Watch) addRemovers(r *Report, keys map[abi.PagecacheKey]int) {
	table := process.New(nil)
	defer table.Close() //nolint:errcheck // only read from
	owners := ownersOf(table)
	list, requests := slices.Clone(w.removals.order), w.requestsBy()
	slices.SortFunc(list, func(a, b *entry[abi.PagecacheRemoval, struct{}]) int {
		return cmp.Or(cmp.Compare(b.weight-b.excess, a.weight-a.excess), cmp.Compare(a.key.Pid, b.key.Pid), cmp.Compare(a.key.How, b.key.How))
	})
	for _, e := range list {
		i, ok := keys[e.key.File]
		if !ok {
			continue
		}
		who := Remover{
			How: ways[min(e.key.How, abi.PagecacheHows-1)], PID: int(e.key.Pid), Comm: unix.ByteSliceToString(e.key.Comm[:]),
			Owner: owners(e.key.Owner), Pages: e.weight - e.excess, ErrorPages: e.excess + r.UnattributedPages + r.LostPages,
		}
		who.Cgroup, _ = table.CgroupPath(e.key.Cgroup) // "" if it is gone
		for _, q := range requests[e.key] {
			q.ErrorPages += who.ErrorPages
			who.Requests = append(who.Requests, q)
		}
		r.Files[i].RemovedBy = append(r.Files[i].RemovedBy, who)
	}
}

// String names a file in errors and tests.
func (f *File) String() string { return fmt.Sprintf("%s (%s, inode %d)", f.Path, f.Device, f.Inode) }
