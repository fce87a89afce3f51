package helper

import (
	"sync"
	"time"
)

// account is the CPU budget of one process, user or file.
type account struct {
	budget       time.Duration // CPU time left; negative: exceeded
	renewed      time.Time
	penalties    int
	penalized    time.Time
	refusedUntil time.Time
}

// payer identifies the owner of an account.
type payer struct {
	kind byte
	a, b uint64
}

const (
	ofProcess = 'p'
	ofUser    = 'u'
	ofFile    = 'f'
)

// share is a CPU budget: the rate per second and the burst.
type share struct{ rate, burst time.Duration }

// The first parse of large debug information takes seconds, and is worth it.
var shares = map[byte]share{
	ofProcess: {100 * time.Millisecond, 5 * time.Second},
	ofUser:    {300 * time.Millisecond, 20 * time.Second},
	ofFile:    {100 * time.Millisecond, 10 * time.Second},
}

const (
	maxAccounts  = 4096
	firstRefusal = time.Second
	maxRefusal   = 10 * time.Minute
	penaltyCost  = time.Second // for users, who can start new processes at will
)

// accounts limits what reading for a process may cost. It is safe for concurrent use.
type accounts struct {
	mu   sync.Mutex
	list map[payer]*account
}

func newAccounts() *accounts { return &accounts{list: map[payer]*account{}} }

func (a *accounts) getLocked(p payer, now time.Time) *account {
	s := shares[p.kind]
	acc := a.list[p]
	if acc == nil {
		if len(a.list) >= maxAccounts {
			a.trimLocked(now)
		}
		acc = &account{budget: s.burst, renewed: now}
		a.list[p] = acc
	}
	if since := now.Sub(acc.renewed); since > 0 {
		acc.budget = min(acc.budget+time.Duration(float64(s.rate)*since.Seconds()), s.burst)
		acc.renewed = now
	}
	return acc
}

// trimLocked removes accounts without debt, and others if necessary.
func (a *accounts) trimLocked(now time.Time) {
	for p, acc := range a.list {
		if now.After(acc.refusedUntil) && acc.budget > 0 && now.Sub(acc.penalized) > maxRefusal {
			delete(a.list, p)
		}
	}
	for p := range a.list {
		if len(a.list) < maxAccounts*3/4 {
			return
		}
		delete(a.list, p)
	}
}

// allow reports whether all payers may continue.
func (a *accounts) allow(now time.Time, list ...payer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range list {
		if acc := a.getLocked(p, now); acc.budget <= 0 || now.Before(acc.refusedUntil) {
			return false
		}
	}
	return true
}

// charge deducts CPU time.
func (a *accounts) charge(now time.Time, cost time.Duration, list ...payer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range list {
		a.getLocked(p, now).budget -= cost
	}
}

// penalize refuses payers for whom a helper had to be killed, longer each time.
func (a *accounts) penalize(now time.Time, list ...payer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range list {
		acc := a.getLocked(p, now)
		if p.kind == ofUser {
			acc.budget -= penaltyCost
			continue
		}
		if now.Sub(acc.penalized) > 2*maxRefusal {
			acc.penalties = 0
		}
		acc.penalized = now
		acc.refusedUntil = now.Add(min(firstRefusal<<min(acc.penalties, 16), maxRefusal))
		acc.penalties++
	}
}

// refusedFiles lists the files that must not be read now.
func (a *accounts) refusedFiles(now time.Time) (list []fileKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, acc := range a.list {
		if p.kind == ofFile && len(list) < maxRefused && (now.Before(acc.refusedUntil) || a.getLocked(p, now).budget <= 0) {
			list = append(list, fileKey{p.a, p.b})
		}
	}
	return list
}
