; The crawler of Fiedler-Hammer, figures 6 to 8. CLIPS says INTEGER where figure 6 says INT.

; figure 6
(deftemplate PAGE
  (slot status-code (type INTEGER))
  (slot location (type STRING))
  (slot last-modified (type INTEGER))
  (slot content-type (type STRING))
  (slot content-length (type INTEGER))
  (slot content (type STRING)))

; figure 8
(defrule LoadPageRule
  (todo ?url)
  (not (done ?url))
  =>
  (load-page ?url)
  (assert (done ?url)))

; section 4.2.1: "new URL addresses can be found by scanning pages which have been retrieved before"
(defrule ReadPageRule
  (page (url ?url) (status ?status) (content-type ?type) (size ?size))
  =>
  (assert (PAGE (status-code ?status) (location ?url) (content-type ?type)
                (content-length ?size) (content (page-html)))))

(defrule FindLinksRule
  (page (site ?site))
  (link (url ?url))
  (test (eq ?site (url-site ?url)))
  =>
  (assert (todo ?url)))
