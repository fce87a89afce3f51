package doctor

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/containers"
	"github.com/tailcam/tailcam/internal/process"
)

// checkContainers looks whether a runtime tells the names of the containers that cgroups
// show.
func checkContainers(ctx context.Context, _ *Options, f facts) (facts, []Result) {
	hosts := process.New(nil)
	defer hosts.Close() //nolint:errcheck // only read from
	var found places
	if err := hosts.Walk(func(_ uint64, path string) { found.add(path) }); err != nil && !errors.Is(err, process.ErrNoCgroup2) {
		return f, []Result{warn("cannot read the cgroups: "+err.Error(), "", "")}
	}
	if f.cfg == nil {
		return f, nil
	}
	return f, found.named(ctx, f.cfg.Containers.Sockets)
}

// places counts what cgroups show.
type places struct{ containers, pods int }

func (p *places) add(path string) {
	switch at := process.PlaceOf(path); {
	case at.Container == "" || at.Runtime == process.LXC || at.Runtime == process.Nspawn: // they have names
	case at.PodUID != "":
		p.pods++
	default:
		p.containers++
	}
}

// named looks whether one of the sockets answers.
func (p *places) named(ctx context.Context, sockets []string) []Result {
	what := strconv.Itoa(p.containers+p.pods) + " containers, " + strconv.Itoa(p.pods) + " of them in pods"
	switch {
	case p.containers+p.pods == 0:
		return []Result{pass("none, by their cgroups")}
	case len(sockets) == 0:
		return []Result{pass(what, "containers.sockets is empty: no runtime is asked for their names")}
	}
	var list []containers.Socket
	for _, s := range sockets {
		if socket, err := containers.ParseSocket(s); err == nil { // as the configuration has checked
			list = append(list, socket)
		}
	}
	var answer, why []string
	refused := false
	for i, err := range containers.Ask(ctx, list) {
		name := list[i].Protocol + ":" + list[i].Path
		switch {
		case err == nil:
			answer = append(answer, name)
		case !errors.Is(err, fs.ErrNotExist):
			refused = refused || errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "permission denied") // gRPC has its text
			why = append(why, name+": "+firstLine(err.Error()))
		}
	}
	if len(answer) > 0 {
		return []Result{pass(what, "their names are from "+strings.Join(answer, ", "))}
	}
	if len(why) == 0 {
		why = []string{"none of containers.sockets exists"}
	}
	do := containers.Advice
	if refused {
		do = "sudo tailcam doctor; the daemon must run as root to ask them"
	}
	return []Result{warn(what+", and no runtime answers",
		"outliers name no pod or container, and rules for them do not match: "+strings.Join(why, "; "), do)}
}
