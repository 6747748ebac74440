; Embedded files are fetched too.
(defrule follow-what-is-shown
   (page (url ?url) (content-type "text/html"))
   =>
   (progn$ (?source (extract "sources"))
      (follow (url-join ?url ?source))))
