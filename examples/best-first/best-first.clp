(deffunction relevance ()
   (min 100 (+ (* 2 (text-count "tern")) (text-count "migration") (text-count "seabird"))))

(defrule follow-by-relevance
   (page (url ?url) (status 200))
   =>
   (bind ?relevance (relevance))
   (progn$ (?link (page-links))
      (follow ?link ?relevance)))
