; How relevant a page is, and which other sites it links to: facts that persist through the visit and are sent home.
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
