; What a page shows without linking to it is fetched too.
(defrule follow-what-is-shown
   (page (url ?url) (content-type "text/html"))
   =>
   (progn$ (?source (extract "sources"))
      (follow (url-join ?url ?source))))
