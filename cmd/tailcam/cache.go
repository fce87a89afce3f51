package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/api"
	"github.com/tailcam/tailcam/internal/pagecache"
	"github.com/tailcam/tailcam/internal/term"
)

// cacheFlags are those of cache.
type cacheFlags struct {
	file, sort string
	length     time.Duration
	most       int
}

func newCache(c *cli) *cobra.Command {
	f := cacheFlags{sort: pagecache.ColumnTotal, length: 10 * time.Second, most: 20}
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show what happens to the page cache, by file (needs root)",
		Long: `Count for the duration of --for, or until SIGINT, what happens to the pages of each file in the
kernel's page cache, and then print the files with the most. All numbers are pages.

hits     asked for by reads and faults, and in the cache; but not when a page is asked for the
         first time since it was brought in, also if that was ahead of need
misses   brought in from the disk, whether it was waited for or read ahead
dirtied  clean before; what a folio of several pages has is counted at once
evicted  removed by reclaim, or as somebody asked for it
removed  cut off with the end of the file, or deleted with it
cached   in the cache at the end

Then who removed pages of these files, and how: kswapd, direct-reclaim (a task for which the
machine had no memory), cgroup-reclaim (a cgroup at its limit), pageout (DAMON, MADV_PAGEOUT),
invalidate (posix_fadvise, drop_caches, direct I/O), truncate, unlink. OWNER is the cgroup that
the pages were charged to. FOR is the request that the task worked for, if it carried a token and
the daemon runs with activities.enabled.

Pages that a program has mapped are asked for when they are mapped, and not each time they are
used. Direct I/O, and files of tmpfs, are not seen. What this kernel cannot tell is "-", with
the reason below.

Memory is bounded: 4,096 files are told apart. A row with "up to N more" may have had so many
pages while it was not; a file with more than a 4,096th of all pages is never left out.

Programs of its own are loaded into the kernel and go when it ends, whatever ends it. No daemon
is needed, but for FOR. Paths are as files were first seen, in the mounts of this process;
others begin with the device.`,
		Example: "  sudo tailcam cache\n" +
			"  sudo tailcam cache --file '/var/lib/postgresql/**' --for 1m --sort evicted\n" +
			"  sudo tailcam cache --file '*.ibd' -n 5 -o json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.cache(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.file, "file", "", "only files whose path matches this `glob`: * within a directory, ** across; without / it is the name alone")
	flags.DurationVar(&f.length, "for", f.length, "count for this `duration` (0s: until SIGINT)")
	flags.IntVarP(&f.most, "count", "n", f.most, "maximum `number` of files")
	flags.StringVar(&f.sort, "sort", f.sort, "sort by this `column`: "+strings.Join(pagecache.Orders, ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(pagecache.Orders, cobra.ShellCompDirectiveNoFileComp))
	c.addOutput(cmd)
	c.addSocket(cmd)
	return cmd
}

func (c *cli) cache(ctx context.Context, f *cacheFlags) error {
	switch {
	case f.length < 0:
		return usagef("invalid --for %s: must not be negative (0s: until SIGINT)", f.length)
	case f.most < 1:
		return usagef("invalid --count %d: must be a positive number", f.most)
	case !slices.Contains(pagecache.Orders, f.sort):
		return usagef("invalid --sort %s: must be one of %s", f.sort, strings.Join(pagecache.Orders, ", "))
	}
	if _, err := checkPrivileges(); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if !c.wantsData() {
		until := "until Ctrl-C"
		if f.length > 0 {
			until = "for " + term.Setting(f.length.Nanoseconds())
		}
		c.err.Printf("counting %s…\n", until)
	}
	report, err := c.deps.cache(ctx, f, c.client())
	if err != nil {
		return err
	}
	if c.wantsData() {
		return c.printData(report)
	}
	c.printCache(report)
	return nil
}

// countCache counts until its time is over. A daemon with activities knows what tasks work for.
func countCache(ctx context.Context, f *cacheFlags, daemon *api.Client) (*pagecache.Report, error) {
	end := ctx
	if f.length > 0 {
		var cancel context.CancelFunc
		end, cancel = context.WithTimeout(ctx, f.length)
		defer cancel()
	}
	opts := pagecache.Options{File: f.file}
	// Without a daemon, or without its activities, who removes pages has no request.
	if info, err := daemon.Activities(end, false); err == nil && len(info.Maps) > 0 {
		if opts.Activities, err = pagecache.OpenMaps(info.Maps); err != nil {
			return nil, err
		}
		defer pagecache.CloseMaps(opts.Activities) //nolint:errcheck // only read from
	}
	w, err := pagecache.Open(&opts)
	if err != nil {
		return nil, err
	}
	defer w.Close() //nolint:errcheck // the kernel removes what is not closed
	if err := w.Run(end); err != nil {
		return nil, err
	}
	r := w.Report(f.sort, f.most)
	if opts.Activities != nil {
		nameRequests(r, daemon)
	}
	return r, nil
}

// nameTime is how long the daemon is asked for names, after the end of the count.
const nameTime = 5 * time.Second

// nameRequests adds what the daemon knows of requests that live, or that it remembers. Without it they
// have their tokens.
func nameRequests(r *pagecache.Report, daemon *api.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), nameTime) // also after SIGINT
	defer cancel()
	info, err := daemon.Activities(ctx, true)
	if err != nil {
		return
	}
	known := map[string]*api.ActivityInfo{}
	for _, list := range [][]api.ActivityInfo{info.Ended, info.Live} {
		for i := range list {
			known[list[i].ID] = &list[i]
		}
	}
	for i := range r.Files {
		for j := range r.Files[i].RemovedBy {
			requests := r.Files[i].RemovedBy[j].Requests
			for k := range requests {
				if a := known[requests[k].Token]; a != nil {
					requests[k].Name, requests[k].Text, requests[k].TraceID = a.Name, a.Text, a.TraceID
				}
			}
		}
	}
}

func (c *cli) printCache(r *pagecache.Report) {
	if len(r.Files) == 0 {
		c.err.Printf("no file was used\n")
	} else {
		names := cacheNames(r)
		c.printCacheFiles(r, names)
		c.printRemovers(r, names)
	}
	for _, m := range r.Missing {
		c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("note: %s: %s", m.Column, m.Reason)))
	}
	for _, n := range []struct {
		n    uint64
		what string
	}{
		{r.LostPages, "pages of unknown files: too many files at once"},
		{r.UnattributedPages, "removed pages without who removed them: too many at once"},
		{r.UnnamedPages, "pages of files without a name, which no --file matches"},
		{r.MissedEvents, "events that the kernel did not tell"},
	} {
		if n.n > 0 {
			c.out.Printf("%s\n", c.out.Paint(term.Dim, fmt.Sprintf("note: %s %s", term.Count(n.n), n.what)))
		}
	}
}

// cacheNames are the names of the files of a report. The same path twice is told apart.
func cacheNames(r *pagecache.Report) []string {
	names, times := make([]string, len(r.Files)), map[string]int{}
	for i := range r.Files {
		f := &r.Files[i]
		names[i] = term.Clean(f.Path)
		switch {
		case f.Disk != "":
			names[i] = "block device " + term.Clean(f.Disk)
		case f.Path == "":
			names[i] = fmt.Sprintf("(no name) %s inode %d", f.Device, f.Inode)
		case !f.Here:
			names[i] = f.Device + ":" + names[i]
		}
		times[names[i]]++
	}
	for i := range names {
		if times[names[i]] > 1 {
			names[i] += fmt.Sprintf(" (%s inode %d)", r.Files[i].Device, r.Files[i].Inode)
		}
	}
	return names
}

func (c *cli) printCacheFiles(r *pagecache.Report, names []string) {
	table := term.NewTable(term.Column{Title: "FILE", Flex: true}, right("HITS"), right("MISSES"), right("DIRTIED"),
		right("EVICTED"), right("REMOVED"), right("CACHED"), term.Column{})
	for i := range r.Files {
		f := &r.Files[i]
		excess := term.Cell{}
		if f.ErrorPages > 0 {
			excess = term.Cell{Text: fmt.Sprintf("up to %s more", term.Count(f.ErrorPages)), Style: term.Yellow}
		}
		table.Cells(term.Cell{Text: names[i], Style: term.Bold}, pages(f.Hits), pages(&f.Misses), pages(f.Dirtied),
			pages(&f.Evicted), pages(&f.Removed), plain(term.Bytes(f.CachedBytes)), excess)
	}
	t := &r.Total
	table.Cells(term.Cell{Text: "all files", Style: term.Dim}, pages(t.Hits), pages(&t.Misses), pages(t.Dirtied),
		pages(&t.Evicted), pages(&t.Removed))
	table.Print(c.out, "")
}

// pages is a number of pages; nil: the kernel does not tell.
func pages(n *uint64) term.Cell {
	if n == nil {
		return term.Cell{Text: "-", Style: term.Dim}
	}
	return nonzero(*n)
}

func nonzero(n uint64) term.Cell {
	if n == 0 {
		return term.Cell{Text: "0", Style: term.Dim}
	}
	return plain(term.Count(n))
}

// mostRemovers is how many are shown of each file.
const mostRemovers = 5

func (c *cli) printRemovers(r *pagecache.Report, names []string) {
	columns := []term.Column{
		{Title: "PAGES OF", Flex: true}, right("PAGES"), {Title: "REMOVED BY"}, {Title: "HOW"}, {Title: "IN", Flex: true},
		{Title: "OWNER", Flex: true},
	}
	requests := slices.ContainsFunc(r.Files, func(f pagecache.File) bool {
		return slices.ContainsFunc(f.RemovedBy, func(who pagecache.Remover) bool { return len(who.Requests) > 0 })
	})
	if requests {
		columns = append(columns, term.Column{Title: "FOR", Flex: true})
	}
	table := term.NewTable(append(columns, term.Column{})...)
	some := false
	for i := range r.Files {
		removers := r.Files[i].RemovedBy
		for j := range removers[:min(len(removers), mostRemovers)] {
			who := &removers[j]
			cells := []term.Cell{
				plain(names[i]), nonzero(who.Pages), plain(fmt.Sprintf("%s %d", term.Clean(who.Comm), who.PID)),
				plain(who.How), plain(term.Clean(who.Cgroup)), plain(term.Clean(who.Owner)),
			}
			if requests {
				cells = append(cells, plain(requestsText(who)))
			}
			excess := term.Cell{}
			if who.ErrorPages > 0 {
				excess = term.Cell{Text: fmt.Sprintf("up to %s more", term.Count(who.ErrorPages)), Style: term.Yellow}
			}
			table.Cells(append(cells, excess)...)
			some = true
		}
	}
	if some {
		c.out.Printf("\n")
		table.Print(c.out, "")
	}
}

// requestsText is which requests a task removed pages for: the one of most pages, and how many there are.
func requestsText(who *pagecache.Remover) string {
	if len(who.Requests) == 0 {
		return ""
	}
	q := &who.Requests[0]
	text := "token " + q.Token
	for _, name := range []string{q.Text, q.Name} {
		if name != "" {
			text = fmt.Sprintf("%s, %s", term.Clean(name), text)
		}
	}
	if more := len(who.Requests) - 1; more > 0 {
		text += fmt.Sprintf(" (%s pages), and %d more", term.Count(q.Pages), more)
	}
	return text
}
