package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/weir-go/weir/httplimit"
)

// Gin is the limits as gin middleware. Gin's handlers write to its own ResponseWriter, past the one that the limits hand on, so
// that this one is told the status afterwards.
func Gin(limits *httplimit.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r
			c.Next()
			w.WriteHeader(c.Writer.Status()) // to the client, no change
		})
		limits.Middleware(next).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// GinShop is a shop on gin.
func GinShop(limits *httplimit.Handler) http.Handler {
	g := gin.New()
	g.Use(func(c *gin.Context) { c.Request = identified(c.Request) }, Gin(limits))
	g.GET("/orders/:id", func(c *gin.Context) {
		c.String(http.StatusOK, c.Param("id"))
	})
	g.POST("/login", func(c *gin.Context) {
		if !allowed(c.Request) {
			c.AbortWithStatus(http.StatusUnauthorized)
		}
	})
	return g
}
