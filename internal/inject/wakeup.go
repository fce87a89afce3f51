package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/internal/linux"
)

// MaxWakeup bounds the delay of [Wakeup]: the kernel takes the CPU away from
// real-time tasks after 0.95 s of each second.
const MaxWakeup = 500 * time.Millisecond

const (
	victimPriority = 1  // real time, so that the timer wakes it from the interrupt on a real-time kernel as well
	hogPriority    = 50 // above the victim, below what a real-time kernel runs its interrupts with
	leadIn         = 2 * time.Millisecond
	attempts       = 8
)

// Wakeup makes one thread wait for a CPU after its wake-up: its timer expires
// while a real-time thread that is pinned to the same CPU spins. The truth
// starts when the timer was due and ends when the thread ran again. delay is
// at most [MaxWakeup]; the answer comes within some ten milliseconds of it.
func Wakeup(ctx context.Context, delay time.Duration) (Truth, error) {
	if delay <= 0 || delay > MaxWakeup {
		return Truth{}, fmt.Errorf("inject a wake-up delay of %v: must be above 0 and at most %v", delay, MaxWakeup)
	}
	cpus, err := linux.AllowedCPUs()
	if err != nil {
		return Truth{}, err
	}
	slices.Reverse(cpus) // the first ones often serve interrupts
	var pair [2]*child
	for i, role := range []string{"victim", "hog"} {
		c, err := startChild(role, false)
		if err != nil {
			return Truth{}, err
		}
		defer c.gone() //nolint:errcheck // a child that stays is bounded by its own order
		defer c.leave()
		pair[i] = c
	}
	for i := range attempts {
		cpu := cpus[i%len(cpus)]
		truth, err := wakeOnce(ctx, pair[0], pair[1], cpu, delay)
		if !errors.Is(err, errDisturbed) {
			truth.Detail = fmt.Sprintf("timer expired while %s kept CPU %d", CommHog, cpu)
			return truth, err
		}
	}
	return Truth{}, fmt.Errorf("inject a wake-up delay: all %d attempts were disturbed; is other real-time work running?", attempts)
}

var errDisturbed = errors.New("the victim slept or ran at the wrong time")

func wakeOnce(ctx context.Context, victim, hog *child, cpu int, delay time.Duration) (Truth, error) {
	for _, c := range []*child{victim, hog} {
		if _, err := c.ask(ctx, message{CPU: cpu}, childTimeout); err != nil {
			return Truth{}, err
		}
	}
	at := linux.Monotonic() + uint64(50*time.Millisecond)
	if err := victim.tell(message{At: at}); err != nil {
		return Truth{}, err
	}
	if err := hog.tell(message{From: at - uint64(leadIn), At: at + uint64(delay)}); err != nil {
		return Truth{}, err
	}
	spun, err := hog.answer(ctx, delay+childTimeout)
	if err != nil {
		return Truth{}, err
	}
	woken, err := victim.answer(ctx, delay+childTimeout)
	if err != nil {
		return Truth{}, err
	}
	if woken.Disturbed || spun.Start >= at || woken.End < spun.End {
		return Truth{}, errDisturbed
	}
	return Truth{
		Track: "wakeup", PID: woken.PID, TID: woken.TID, Comm: CommVictim,
		StartMono: at, EndMono: woken.End,
	}, nil
}

// victim sleeps until the time it is told and says when it ran again.
func victim(w *wire) error {
	if err := lockThread(CommVictim); err != nil {
		return err
	}
	return w.serve(func(order message) (message, error) {
		if order.At == 0 {
			return message{}, prepare(order.CPU, victimPriority)
		}
		if linux.Monotonic()+uint64(leadIn) >= order.At {
			return message{Disturbed: true}, nil
		}
		end, once := sleepOnce(order.At)
		return message{PID: os.Getpid(), TID: unix.Gettid(), End: end, Disturbed: !once}, nil
	})
}

// hog keeps its CPU between the times it is told.
func hog(w *wire) error {
	if err := lockThread(CommHog); err != nil {
		return err
	}
	return w.serve(func(order message) (message, error) {
		if order.At == 0 {
			return message{}, prepare(order.CPU, hogPriority)
		}
		sleepUntil(order.From)
		start := linux.Monotonic()
		return message{Start: start, End: spinThenYield(order.At)}, nil
	})
}

func prepare(cpu int, priority uint32) error {
	if err := pinThread(cpu); err != nil {
		return err
	}
	return realTime(priority)
}
