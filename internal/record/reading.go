package record

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/api"
)

// readLimit is how long the daemon may take to answer, on a machine that is busy.
const readLimit = 30 * time.Second

// read asks for everything.
func (r *run) read() (reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	list, err := r.daemon.Client.Histograms(ctx, "")
	if err != nil {
		return reading{}, fmt.Errorf("read histograms: %w", err)
	}
	status, err := r.daemon.Client.Status(ctx)
	if err != nil {
		return reading{}, fmt.Errorf("read status: %w", err)
	}
	return reading{status, ofRules(list)}, nil
}

// readRules asks for what slices have.
func (r *run) readRules() (reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	list, err := r.daemon.Client.Histograms(ctx, "")
	if err != nil {
		return reading{}, err
	}
	infos, err := r.daemon.Client.Rules(ctx)
	if err != nil {
		return reading{}, err
	}
	return reading{&api.Status{Rules: infos}, ofRules(list)}, nil
}

// ofRules are the histograms of whole rules.
func ofRules(list []api.HistogramInfo) map[string]*api.HistogramInfo {
	of := map[string]*api.HistogramInfo{}
	for i := range list {
		if h := &list[i]; h.Rule != "" && h.By == "" && h.Class == "" {
			of[h.Rule] = h
		}
	}
	return of
}

// counted is what a rule has counted.
func (r *reading) counted(rule *api.RuleInfo) counted {
	c := counted{outliers: rule.Outliers + rule.Limited}
	if h := r.histograms[rule.Name]; h != nil {
		c.delays = fromInfo(h)
	}
	return c
}

// attaching reports whether a rule waits for functions of system calls.
func attaching(list []api.RuleInfo) bool {
	for i := range list {
		if strings.HasPrefix(list[i].Attaching, "attaching") {
			return true
		}
	}
	return false
}
