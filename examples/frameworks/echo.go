package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/weir-go/weir/httplimit"
)

// Echo is the limits as echo middleware. Echo turns an error that a handler returns into an answer after all middleware has
// run; here it is answered before, so that the limits see the status.
func Echo(limits *httplimit.Handler) echo.MiddlewareFunc {
	wrapped := echo.WrapMiddleware(limits.Middleware)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrapped(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
}

// EchoShop is a shop on echo.
func EchoShop(limits *httplimit.Handler) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(identify), Echo(limits))
	e.GET("/orders/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, c.Param("id"))
	})
	e.POST("/login", func(c echo.Context) error {
		if !allowed(c.Request()) {
			return echo.ErrUnauthorized
		}
		return c.NoContent(http.StatusOK)
	})
	return e
}
