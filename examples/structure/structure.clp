; (wanted WORD COUNT) is an initial fact of the spec.
(deftemplate tree (slot root) (slot word) (slot matches))

; The folder of a page is the root of its tree.
(deffunction folder (?url)
   (url-join ?url "."))

(defrule count-match
   (wanted ?word ?least)
   (page (url ?url) (status 200))
   (test (text-has ?word))
   =>
   (bind ?root (folder ?url))
   (bind ?n (+ 1 (recall ?root 0)))
   (store ?root ?n)
   (if (= ?n ?least) then
      (assert (tree (root ?root) (word ?word) (matches ?n)))))

(defrule count-on
   (page (url ?url) (status 200))
   ?tree <- (tree (root ?root) (matches ?n))
   =>
   (bind ?now (recall ?root ?n))
   (if (> ?now ?n) then
      (modify ?tree (matches ?now))))
