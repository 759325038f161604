package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-go/weir/gateway"
)

// serve is weir serve with its flags.
type serve struct {
	config   string
	upstream string
	limits   []string
	listen   string
	admin    string
	store    string
	replicas int

	logFormat string
	logLevel  string
	logKeys   bool
}

func newServe() *cobra.Command {
	var s serve
	cmd := &cobra.Command{
		Use:   "serve (-c weir.yaml | --upstream URL --limit 'NAME=RATE ...')",
		Short: "Run the reverse proxy with limits",
		Long: `serve passes requests on to an upstream as far as the limits admit, and answers the others with 429.

With a configuration file it serves what the file says, and serves it anew on SIGHUP and when the file, or a certificate or key file it
names, changes: all of it, or, if anything in it is wrong, nothing. Without one it serves one upstream behind the given limits. A limit
is for each client, one called global for all together, unless it says key=K, as in a file. It listens on all addresses, unless --listen says less.

SIGTERM and SIGINT stop it: open requests may end, for as long as the configuration's shutdown says.`,
		Example: `  weir serve -c weir.yaml
  weir serve --upstream http://127.0.0.1:9000 --limit 'client=100/m burst=20' --limit 'global=5000/s'`,
		Args: afterC,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.config, "config", "c", "", "the configuration `file`")
	f.StringVar(&s.upstream, "upstream", "", "without a file: the `URL` that requests are passed on to")
	f.StringArrayVar(&s.limits, "limit", nil, "without a file: a `limit`, as 'client=100/m burst=20 key=ip'; may be repeated")
	f.StringVar(&s.listen, "listen", "", "without a file: the `address` to listen on (default :8080)")
	f.StringVar(&s.admin, "admin", "", "without a file: the `address` for operators, or off (default 127.0.0.1:9090)")
	f.StringVar(&s.store, "store", "", "without a file: a Redis `URL`, where limits are counted together with other instances")
	f.IntVar(&s.replicas, "replicas", 0, "without a file: the `number` of instances that share the store (default 1)")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error; info has the first refusals of a minute and the number of the others, debug every request")
	f.BoolVar(&s.logKeys, "log-keys", false, "log whom a refusal met as text, not as a hash")
	return cmd
}

// run serves until ctx ends.
func (s *serve) run(ctx context.Context, stdout, stderr io.Writer) error {
	log, err := s.logger(stderr)
	if err != nil {
		return err
	}
	cfg, err := s.configuration()
	if err != nil {
		return err
	}
	g, err := gateway.New(cfg, gateway.Options{Logger: log, LogKeys: s.logKeys})
	if err != nil {
		return badConfig(err)
	}
	if err := g.Listen(); err != nil {
		return failed(s.whereToListen(err))
	}
	for _, url := range g.URLs() {
		fmt.Fprintln(stdout, "weir: serving on", url)
	}
	if url := g.AdminURL(); url != "" {
		fmt.Fprintln(stdout, "weir: admin on", url)
	}

	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	if s.config != "" {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		watching.Go(func() { g.Watch(ctx, s.config, hup) })
	}
	err = g.Serve(ctx)
	stop()
	watching.Wait()
	return failed(err)
}

// whereToListen is an error of Listen, with the setting to change.
func (s *serve) whereToListen(err error) error {
	var listen *gateway.ListenError
	if !errors.As(err, &listen) {
		return err
	}
	setting := listen.Field
	switch admin := setting == "admin.address"; {
	case s.config == "" && admin:
		setting = "--admin"
	case s.config == "":
		setting = "--listen"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w: give another address with %s, or stop what has this one", listen.Address, listen.Err, setting)
	}
	return fmt.Errorf("listen on %s: %w: the address comes from %s", listen.Address, listen.Err, setting)
}

// configuration is that of the file, or of the other flags.
func (s *serve) configuration() (*gateway.Config, error) {
	quick := s.upstream != "" || s.limits != nil || s.listen != "" || s.admin != "" || s.store != "" || s.replicas != 0
	switch {
	case s.config != "" && quick:
		return nil, badUsage("--upstream, --limit, --listen, --admin, --store and --replicas are for running without a file")
	case s.config != "":
		cfg, err := gateway.Load(s.config)
		return cfg, badConfig(err)
	case s.upstream == "":
		return nil, badUsage("nothing to serve; give -c FILE, or --upstream URL")
	}
	cfg, err := gateway.Quick(s.upstream, s.limits, s.listen)
	if err != nil {
		return nil, badConfig(err)
	}
	if len(s.limits) == 0 {
		return nil, badUsage("no --limit: everything would pass; add one, as --limit 'client=100/m burst=20'")
	}
	cfg.Admin.Address, cfg.Store, cfg.Replicas = s.admin, s.store, s.replicas
	return cfg, nil
}

func (s *serve) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, badUsage("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, badUsage("--log-format %q: want text or json", s.logFormat)
}
