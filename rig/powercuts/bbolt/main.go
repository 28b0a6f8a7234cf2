// bbolt under rig/torture: `bbolt load|check sync|nosync`, as programs.py describes it.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

const (
	transactions = 120
	kept         = 40
	pace         = 8 * time.Millisecond
)

var bucket = []byte("b")

// content is the bytes of a number, unique to it.
func content(number int) []byte {
	sum := sha256.Sum256([]byte(fmt.Sprint(number)))
	return bytes.Repeat(sum[:], 40)
}

func key(number int) []byte { return []byte(fmt.Sprintf("%06d", number)) }

func open(sync bool) (*bbolt.DB, error) {
	path := filepath.Join(os.Getenv("DIR"), "db")
	return bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 5 * time.Second, NoSync: !sync, NoFreelistSync: false})
}

// load writes one number per transaction, and deletes the one that is `kept` older.
func load(sync bool) error {
	db, err := open(sync)
	if err != nil {
		return err
	}
	for number := 1; number <= transactions; number++ {
		err := db.Update(func(tx *bbolt.Tx) error {
			all, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			if err := all.Put(key(number), content(number)); err != nil {
				return err
			}
			return all.Delete(key(number - kept))
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(os.Getenv("MARKS"), []byte(fmt.Sprintln(number)), 0); err != nil {
			return err
		}
		time.Sleep(pace)
	}
	return db.Close()
}

func acknowledged() int {
	last := 0
	text, _ := os.ReadFile(os.Getenv("MARKS"))
	for _, line := range strings.Fields(string(text)) {
		fmt.Sscan(line, &last)
	}
	return last
}

func compare(last int) string {
	switch missing := acknowledged() - last; {
	case missing <= 0:
		return "ok"
	case missing == 1:
		return "last: the last acknowledged one is missing"
	default:
		return fmt.Sprintf("tail: %d acknowledged ones are missing", missing)
	}
}

func check(sync bool) (verdict string) {
	// Damaged pages may cause a panic.
	defer func() {
		if reason := recover(); reason != nil {
			verdict = fmt.Sprintf("corrupt: a panic: %.60v", reason)
		}
	}()
	if about, err := os.Stat(filepath.Join(os.Getenv("DIR"), "db")); err != nil || about.Size() == 0 {
		return compare(0)
	}
	db, err := open(sync)
	if err != nil {
		// A new file is not acknowledged before its first transaction.
		if acknowledged() == 0 {
			return "ok"
		}
		return "corrupt: " + err.Error()
	}

	last := 0
	err = db.View(func(tx *bbolt.Tx) error {
		for problem := range tx.Check() {
			return problem
		}
		all := tx.Bucket(bucket)
		if all == nil {
			return nil
		}
		count := 0
		err := all.ForEach(func(name, value []byte) error {
			fmt.Sscan(strings.TrimLeft(string(name), "0"), &last)
			if !bytes.Equal(value, content(last)) {
				return fmt.Errorf("a value that was never written")
			}
			count++
			return nil
		})
		if err == nil && count != min(last, kept) {
			return fmt.Errorf("keys of different transactions")
		}
		return err
	})
	if err != nil {
		return "corrupt: " + err.Error()
	}
	return compare(last)
}

func main() {
	sync := os.Args[2] == "sync"
	if os.Args[1] == "load" {
		if err := load(sync); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	verdict := check(sync)
	fmt.Println(verdict)
	if verdict != "ok" {
		os.Exit(1)
	}
}
