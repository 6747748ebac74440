; The relevance of pages, and the external sites: facts that persist during the visit and travel home.
(deftemplate relevant (slot url) (slot score))
(deftemplate external (slot site))

(deffunction page-relevance ()
   (+ (* 3 (text-count "health")) (* 2 (text-count "clinic")) (text-count "patient")))

(defrule note-relevant-page
   (page (url ?url) (status 200) (selected TRUE))
   =>
   (assert (relevant (url ?url) (score (page-relevance)))))

; "The host part of these external addresses can be used as migration destination for future crawls."
(defrule note-external-site
   (link (url ?url) (page ?page))
   (test (neq (url-site ?url) (url-site ?page)))
   (not (external (site =(url-site ?url))))
   =>
   (assert (external (site (url-site ?url)))))
