package tailcam

import (
	"iter"
	"sync/atomic"
)

// Accounts yields the account of each live token of the process.
func (h *Handle) Accounts() iter.Seq[Account] {
	return func(yield func(Account) bool) {
		if h == nil {
			return
		}
		for index := h.first; index < h.first+h.tokens; index++ {
			generation := atomic.LoadUint32(&h.element(index).Generation)
			if a, ok := h.Read(Token(generation)<<32 | Token(index)); ok && !yield(a) {
				return
			}
		}
	}
}

// Map yields f of each account. Accounts are of Handle.Accounts, or slices.Values of what
// Handle.End has returned.
func Map[T any](accounts iter.Seq[Account], f func(Account) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for a := range accounts {
			if !yield(f(a)) {
				return
			}
		}
	}
}

// Filter yields the accounts that keep wants.
func Filter(accounts iter.Seq[Account], keep func(Account) bool) iter.Seq[Account] {
	return func(yield func(Account) bool) {
		for a := range accounts {
			if keep(a) && !yield(a) {
				return
			}
		}
	}
}

// Fold returns f(f(initial, account), account), and so on.
func Fold[T any](accounts iter.Seq[Account], initial T, f func(T, Account) T) T {
	for a := range accounts {
		initial = f(initial, a)
	}
	return initial
}

// Merge returns the sum of accounts.
func Merge(accounts iter.Seq[Account]) Account {
	return Fold(accounts, Account{}, func(sum, a Account) Account {
		sum.Merge(a)
		return sum
	})
}
