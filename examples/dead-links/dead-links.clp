(deftemplate dead-link (slot url) (slot reason) (slot found-on))

(defrule answer-is-bad
   (page (url ?url) (status ?status&:(>= ?status 400)) (referrer ?from))
   =>
   (emit dead-link ?url ?status ?from))

(defrule no-answer
   (page (url ?url) (error ?error&~""&~"robots") (referrer ?from))
   =>
   (emit dead-link ?url ?error ?from))
