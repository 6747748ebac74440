"""The small words of the common languages, which say nothing of what a page is about."""

_LISTS = {
    "en": """a about above according after again against all almost along already also although always am
        among an and another any anything are aren around as at away back be became because become been
        before being below between both but by came can cannot come could couldn did didn do does doesn
        doing don done down during each either else enough etc even ever every few first for from
        further get gets give given go goes got had has hasn have haven having he hence her here herself
        him himself his how however if in instead into is isn it its itself just least less let like ll
        made make makes many may maybe me might more most much must my myself need needs neither never
        new next no nor not nothing now of off often on once one only onto or other others otherwise our
        ours out over own per perhaps rather re same say says see seen several shall she should shouldn
        since so some someone something still such than that the their theirs them themselves then there
        therefore these they thing things this those though through thus to together too toward towards
        two under unless until up upon us use used uses using usually ve very via was wasn way we well
        were what when where whether which while who whom whose why will with within without won would
        yes yet you your yours yourself""",
    "de": """ab aber alle allem allen aller alles als also am an andere anderen anderer anderes auch auf aus
        bei beim bereits bis bzw da dabei dadurch dafür daher damit danach dann daran darauf darf
        darüber das dass dazu dein deine dem den denen denn der deren des deshalb dessen die dies diese
        diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines einige er erst
        es etwa etwas euch falls für gegen gibt hab habe haben hat hatte hätte hier hin hinter ich ihm
        ihn ihnen ihr ihre ihrem ihren ihrer im immer in indem ins ist ja jede jedem jeden jeder jedes
        jedoch jetzt kann kein keine keinen können könnte lassen lässt man mehr mein meine mich mir mit
        muss müssen nach nachdem neben nicht nichts noch nun nur ob oder ohne sehr sein seine seinem
        seinen seiner seit selbst sich sie sind so sobald sofern solche soll sollte sollten somit
        sondern sonst sowie statt über um und uns unser unter usw viel viele vom von vor wann war waren
        warum was weil weitere weiteren welche welcher wenn wer werden wie wieder will wir wird wo wobei
        worden wurde wurden während würde zu zum zur zwar zwischen""",
    "fr": """afin ai ainsi alors après au aucun aucune aujourd aussi autre autres aux avait avant avec avez
        avoir avons bien c car ce ceci cela celle celles celui ces cet cette ceux chaque chez comme
        comment d dans de depuis des dès deux devez doit doivent donc dont du elle elles en encore entre
        es est et étaient était étant été êtes être eux fait faire fois font hors ici il ils j je jusqu
        l la le les leur leurs lors lorsqu lorsque lui là m ma mais me même mêmes mes moi moins mon n ne
        ni non nos notre nous on ont ou où par parce parfois pas pendant permet peu peut peuvent plupart
        plus plusieurs plutôt pour pourquoi pouvez près puis puisque qu quand que quel quelle quelles
        quelque quelques quels qui quoi s sa sans se selon sera seront ses seul seule si sinon soit son
        sont sous souvent sur t ta tandis tant te tel telle tels tes toi ton toujours tous tout toute
        toutefois toutes très trop tu un une vers voici voir vos votre vous y à ça""",
    "es": """a además ahora al algo alguna algunas alguno algunos allí ambos ante antes aquel aquella aquí
        aquellos así aun aunque bajo bien cada casi como cómo con contra cual cuales cualquier cuando
        cuanto cuya cuyo da de debe deben debería del desde después donde dos durante e el él ella ellas
        ellos embargo en entonces entre era eran eres es esa esas ese eso esos esta está están estar
        estas este esto estos fin fue fueron ha haber había hace hacer hacia han hasta hay he incluso la
        las le les lo los luego mas más me mediante mejor menos mi mientras mis misma mismo mismos
        muchas mucho muchos muy nada ni ningún ninguna no nos nosotros nuestra nuestro nunca o obstante
        otra otras otro otros para pero poco podrá podría por porque pueda puede pueden pues que qué
        quien quienes se sea sean según ser será si sí sido siempre sin sino sobre solo sólo son su sus
        tal también tampoco tan tanto te tener tenga tiene tienen toda todas todavía todo todos tras tu
        tus u un una unas uno unos usted va varias varios veces vez y ya yo""",
    "it": """a abbia ad affinché agli ai al alcune alcuni alcuno all alla alle allo allora altra altre altri
        altro anche ancora anzi attraverso avere aveva ben c che chi ci ciascun ciò cioè come comunque
        con contro così cui d da dagli dai dal dall dalla dalle dallo degli dei del dell della delle
        dello dentro deve devono di dopo dove due dunque durante e è ed era erano essa esse essere essi
        esso fa far fare finché fino fra già gli ha hanno ho i il in infatti infine inoltre invece io l
        la le lei li lo loro lui ma mai mediante meno mentre mi mia mio molte molti molto ne negli nei
        nel nell nella nelle nello nessun nessuna no noi non nostra nostro o od ogni ognuno oltre oppure
        ora per perché perciò però più piuttosto po poi poiché possibile possono prima proprio può qua
        qual quale quali qualche qualcosa quando quanto quasi quella quelle quelli quello questa queste
        questi questo qui quindi s sarà se secondo sei sempre senza si sia siano so solo sono sopra
        sotto spesso stata stati stato stessa stesso su sua subito sue sugli sui sul sull sulla sulle
        suo suoi tale tali tanto te tra tramite troppo tu tua tuo tutta tuttavia tutte tutti tutto un
        una uno va verso vi viene vengono voi volta vostra vostro""",
    "pt": """a à acima agora ainda além algo algum alguma algumas alguns ali ante antes ao aos apenas após
        aquela aquele aqueles aquilo aqui as às assim até através bem cada com como contra contudo da
        dado das de dela delas dele deles depois desde dessa desse desta deste deve devem dever disso
        disto do dois dos duas durante e é ela elas ele eles em embora enquanto então entre era eram
        essa essas esse esses esta está estão estar estas este estes eu exemplo faz fazer foi fora foram
        há havia isso isto já la lhe lhes lo logo lá maior mais mas me meio melhor menos mesma mesmo meu
        minha muita muitas muito muitos na nada não nas nem nenhum nessa nesse nesta neste no nos nós
        nossa nosso num numa nunca o onde ora os ou outra outras outro outros para pela pelas pelo pelos
        per pode podem poder por porém porque portanto possa pouco primeiro pois qual quais qualquer
        quando quanto quase que quem se seja sejam sem sempre sendo ser será serão seu seus si sido só
        sob sobre sua suas são tal tais também tampouco tanto tão te tem têm ter toda todas todavia todo
        todos tua tudo um uma umas uns vai vez vezes você vocês""",
    "nl": """aan achter af al aldus alle alleen allemaal alles als altijd andere anders ben bent bij bijna
        bijvoorbeeld binnen boven buiten daar daarbij daardoor daarna daarom daarvoor dan dat de deze
        die dit doch doen doet door dus echter een één elk elke en er erg ervan ervoor even gaan geen
        geeft gegeven geweest had hadden heb hebben hebt heeft hem hen het hier hierbij hij hoe hun
        iedere iemand iets ik in indien is ja je jou jouw jullie kan komen komt kon kunnen kunt maar
        maken mag me meer meest men met mijn misschien moet moeten na naar nadat niet niets nieuwe niks
        nog nu of om omdat onder ons onze ook op over per reeds samen sinds slechts sommige steeds te
        tegen tegenover ten ter terug terwijl tijdens toch toe tot totdat tussen twee u uit uw vaak van
        vanaf veel verder via volgens voor vooral vooraf waar waarbij waardoor waarin waarom wanneer
        want waren was wat we weer wel welk welke werd werden wie wij wil worden wordt zal ze zeer zelf
        zelfs zich zij zijn zo zoals zodat zonder zou zouden zowel zullen""",
    "sv": """aldrig all alla allt allra andra annan annat att av bara behöver bland blev bli blir blivit bort
        bra båda de dem den denna deras dess dessa det detta dig din dina ditt dock du där därför då
        eftersom ej eller en endast enligt er era ett ex exempel exempelvis fanns fast finnas finns fler
        flera flesta få får fått för före först första förut genom ger gör göra gå går hade han hans har
        helt hennes hon honom hos hur här i ibland icke igen in inga ingen inget innan inne inom inte
        istället ja jag kan kanske kommer kunde kunna lite man med medan mellan men mer mera mest mig
        min mina mindre mitt mot mycket många måste ned ni nog nu någon något några när och också om oss
        på redan samma samt sedan sen ser sig sin sina sitt själv ska skall skulle som så sådan sådana
        sådant till tills trots två under upp ur ut utan vad var vara varför vart varit varje vars vem
        vi via vid vilka vilken vilket vill än ännu är åt även över""",
    "da": """ad af aldrig alle allerede alt altid anden andet andre at bare begge bl blandt blev blive bliver
        blot burde bør da de dem den denne der deres derfor des desuden det dette dig din dine disse dit
        dog du efter ej eller en end endnu enhver er et få får fik findes flere fleste for fordi
        forskellige fra før først gennem gjorde gør gøre går ham han hans har havde have hele heller
        hende hendes her hinanden hos hun hver hvad hvem hvilke hvilken hvilket hvis hvor hvordan
        hvorfor hvornår i ifølge igen ikke ind inden ingen intet ja jeg jer jeres jo kan kom komme
        kommer kun kunne lige lille lidt man mange med meget mellem men mens mere mest mig min mindre
        mine mit mod må måske ned nej noget nogen nogle nok nu ny nye nær når og også om op os over på
        samme samt se selv selvom sig sin sine sit siden skal skulle som stor store så sådan tid til to
        ud uden under var ved vi via vil ville vor vore vores være været""",
    "no": """alle allerede alltid andre annen annet at av bare begge begynne ble blei bli blir blitt bruk
        bruke bruker burde bør da de deg dei deira dem den denne der dere deres derfor det dette di din
        disse ditt du dvs eg ei eit eks eller en enda ennå enn er et etter ett fikk finnes fleire flere
        for fordi fra frå får først før gjennom gjerne gjør gjøre gå går ha hadde han hans har helt
        henne hennes her hjå ho hun hva hvem hver hvilke hvilken hvis hvor hvordan hvorfor i ifølge
        igjen ikke ikkje ingen inn inne innen ja jeg kan kom kommer korleis kun kunne kva kvar kvifor
        lage litt man mange med meg meget mellom men mens mer mest mi min mindre mine mitt mot mye må
        måtte ned nei noe noen nok nokon noko nå når og også om opp oss over på samme se seg selv selvom
        si siden sin sine sist sitt sjå skal skulle slik so som så til to um under unna uten ut vart ved
        vere vi via vil ville vår være vært å""",
    "fi": """aina ainakin ainoastaan alla alle asti edelleen ehkä ei eikä eivät eli ellei en enemmän ennen
        ensin erilaisia että esimerkiksi haluat hän heidän he ilman itse ja jo johon joita joka jokainen
        joko jolla jolloin jonka jos joskus jossa josta jota jotka jotta jälkeen kahden kaikki kaikkien
        kanssa kautta kerran keskellä kohti koko koska koskaan kuin kuinka kuitenkin kun kuten kyllä
        käyttäen kaksi lisäksi luo lähes me meidän mielestä mihin mikä mikäli minkä minun minä missä
        mistä mitä mitään mm mukaan mukana mutta muu muut muun muita myös myöhemmin ne niiden niin niitä
        noin nuo nyt näiden näin näitä nämä ole olen olet oli olla olleet ollut olisi olivat on oma oman
        onko ovat pitkin pitää paitsi paljon se sekä sellainen sen siellä siihen siis siitä sillä
        silloin silti sinä siten sitten sitä sopii taas tai te tehdä teidän toinen tosin tulee tulisi
        tuo tähän tällä tällöin tämä tämän tässä tästä tätä usein useita useimmat vaan vai vaikka vain
        varten vasta vastaan vielä voi voidaan voit voisi voivat vuoksi yhä yksi yli""",
    "pl": """a aby albo ale ani aż bardziej bardzo bez bo bowiem był była było były być będzie będą celu co
        coraz czy czyli dalej dla dlaczego dlatego do dwa gdy gdyż gdzie go i ich ile im inne innych iż
        ja jak jakie jako jakiś je jeden jednak jednym jego jej jest jestem jeszcze jeśli jeżeli już
        każda każdego każdy kiedy kilka kto która które którego której który których którym którzy lecz
        lub ma mają mi mimo może można mogą moje musi my na nad nadal nam nas nasz natomiast nawet nic
        nich nie niego niej niektóre nigdy nim niż no o od ona one oni ono oprócz oraz po pod podczas
        ponad ponieważ ponownie potem powinien poza pozwala przed przede przez przy przykład się są sam
        samo siebie skąd sobie swoje sposób ta tak taka takich takie takim także tam te tego tej temu
        ten też to tych tylko tym tzw u w wam was we wiele wielu więc wraz wszystkich wszystkie wszystko
        wy z za zamiast zatem zawsze ze został została zostanie znajduje że żeby żaden""",
    "cs": """a aby aj ale ani aniž asi atd až bez bude budou by byl byla byli bylo byly být co což další
        dalších dnes do dokud hned ho i já jak jako je jeden jedna jedno jeho jej její jejich jen jenž
        jestli ještě jí jich jimi jinak jiné jiný již jsem jsme jsou jste k kam kde kdo kdy kdyby když
        ke kolik kromě která které kterou který kteří kvůli lze má mají máte me mezi mi mimo mít mně
        mnoho mnou může mohou můžete můj musí my na nad nám např například nás náš ne nebo nebyl neboť
        nechť nejen nejsou není než nic nich ním no o od ode on ona oni ono pak po pod podle pokud
        pomocí poté pouze právě pro proč proto protože první před přes přesto při příliš s sám se si
        sice snad spolu stále svá své svůj svých ta tak také takový takže tam tato te tedy ten tento
        teto ti tím to tohle toho tom tomto tomu toto tuto ty tyto třeba u už v vám vás vaše váš ve
        vedle velmi více však všech všechno všechny vy z za zda zde ze že""",
    "sk": """a aby aj ak ako ale alebo ani asi až bez bol bola boli bolo bude budú by byť cez či čo ďalšie do
        ešte ho hoci i iba ich im iné ja je jeho jej jemu kam každý kde keď keďže kto ktorá ktoré ktorý
        ktorí ku lebo len medzi mi mať má majú možno môže môžu my na nad nám nás nie nich niektoré no o
        od on ona oni po pod podľa pokiaľ potom práve pre preto pretože pri s sa si sme so som sú svoje
        ta tak takže takto tam tá táto teda ten tento ti tiež tieto to toho tohto tom tomto toto tu už v
        vám vás viac vo však všetky všetko vy z za zo že""",
    "ru": """а без более больше будет будут бы был была были было быть в вам вами вас весь вместо во вот
        время все всегда всего всех вы где да даже два для до должен должна должны достаточно другие
        другой других его ее если есть ещё еще её же за здесь и из или им именно иметь имеет их к каждый
        как какие какой когда кого конечно которая которого которое которой которые который которых
        кроме кто куда ли либо лишь лучше между меня мне многие может можно могут мой мы на над надо нам
        нас наш не него нее ней некоторые необходимо нет ни ними них но ну нужно о об обычно один одна
        однако одно около он она они оно от ото очень перед по под пока после потом потому почти при про
        просто раз с сам сама свой своей своего себе себя сейчас сначала снова со собой совсем так также
        такая такие таким такого такой такое там те тем теперь то тогда того тоже той только том тот
        тому три ту тут ты у уж уже хотя чего чем через что чтобы чуть эта эти этим этих это этого этой
        этом этот эту я является""",
    "uk": """а або аби але без більш більше буде був була були було бути в вам вас ваш весь вже ви від
        відповідно він вона вони воно все всі всіх всього де для до дуже є жодного з за завжди зі й його
        йому її їй їм їх і із інші інших коли кожен крім куди ледве лише має мають мене мені ми мій між
        може можна можуть на над навіть нам нас наш не немає неї нею ним них ні ніж ніколи ну о один
        однак окрім ось от перед під після по поки при про раз разом сам саме свій своє своєї себе собі
        та так така такі також такий там те тепер ти тим тих то тобто тоді той того тому тільки треба ту
        тут у уже хоча хто це цей цього цьому цим цих ця ці через чи чого чому що щоб щодо щось якщо
        який яка яке які якої яких як я""",
    "tr": """acaba ama ancak aracılığıyla artık asla aslında ayrıca az bana bazen bazı belki ben beni benim
        beri bile bir birçok biri birkaç birlikte biz bizim böyle böylece bu buna bunda bundan bunlar
        bunları bunların bunu bunun burada bütün çok çünkü da daha dahi de defa değil demek diğer diye
        doğru dolayı e eden edilen eğer en etmek gerek gerekir gibi göre hala hangi hatta hem henüz hep
        hepsi her herhangi herkes hiç hiçbir ı için içinde içine ile ilgili ilk ise işte kadar karşın
        kendi kendine kez ki kim kimi kimse mı mi mu mü nasıl ne neden nedenle nerede nereye niye o olan
        olarak oldu olduğu olduğunu olması olmak olmayan olsa olur on ona ondan onlar onların onu onun
        orada oysa öyle özellikle pek rağmen sadece sanki sen senin siz sizin sonra şey şimdi şöyle şu
        tarafından tüm ve veya var vardır ya yada yani yapılan yapmak yerine yine yok yoksa yönelik
        zaman zaten""",
    "hu": """a ahhoz aki ahol akkor alatt által általában ami amely amelyek amikor amíg annak arra át az azok
        azonban azt aztán azért be belül benne bár csak de e ebben egy egyes egyéb egyik egyszer el első
        ellen elég előtt en ennek erre ez ezek ezen ezt ezzel ezért fel felé hanem ha hogy hogyan hozzá
        igen így ill illetve ilyen is ismét itt jó jól kell kellett keresztül ki kívül között közül le
        legalább legyen lehet lenne lenni lesz lett maga magát majd már más meg még mely melyek mert mi
        míg mindig minden mint mintha mivel most nagy nagyobb nagyon ne néha nekem neki nem nincs olyan
        ott össze ők ő pedig persze s saját sem semmi sok sokat során szerint számára szinte talán te
        tehát teljes többi tovább túl úgy ugyanis új újra utána utolsó vagy vagyis valaki valami van
        vannak viszont vissza volna volt voltak""",
    "ro": """a abia acea aceasta această aceea aceia acel acela acele acest acesta aceste acestea acestor
        acestui acolo acum ai aici al ale alt alte altele am apoi ar are asemenea astfel asupra atât
        atunci au avea avem bine ca că când care cărei căror cât către ce cea cei cel cele cine cu cum
        da dacă dar datorită de deci decât deja deoarece departe deși despre din dintre doar după e ea
        ei el ele era este eu fără fi fie fiecare fiind foarte fost în înainte înapoi încât încă însă
        într între îi îl îmi își iar la le li lor lui mai mea mei mult multe mulți ne nici nimic niște
        noi noastră nostru nu numai o ori orice oricare pe pentru peste poate pot prea prin puțin sa
        sale sau să se și sunt suntem spre sub ta te toate tot toți totul trebuie tu un una unde unei
        unele unor unui unul va vă vi voi vor vostru""",
    "id": """ada adalah agar akan aku anda antara apa apabila apakah atas atau bagaimana bagi bahkan bahwa
        banyak beberapa begitu belum berada berbagai berikut bila bisa boleh bukan cara cukup dalam dan
        dapat dari daripada demikian dengan di dia ini itu juga jika jadi kali kalau kami kamu karena ke
        kembali kemudian kepada ketika kita lagi lain lainnya lalu lebih maka mana masih masing melalui
        memang menjadi mereka merupakan meskipun mungkin namun nya oleh pada paling para pasti per perlu
        pernah pula pun saat saja sama sampai sangat saya se sebagai sebuah sebelum secara sedang
        sehingga sejak sekarang selain selalu selama semua sendiri seperti seorang serta sering setelah
        setiap sebagian suatu sudah supaya tanpa tapi telah tentang terhadap terlalu termasuk tersebut
        tetapi tiap tidak untuk yaitu yang""",
    "vi": """bạn bằng bị bởi các cách cái cần cả chỉ cho chúng chưa có còn cũng của cùng do dù đã đang đây đó
        để đến đều điều được gì giữa hãy hay hơn họ hoặc khác khi không lại là làm lên mà mỗi một này
        nào nên nếu như nhưng những nó phải qua ra rằng rất rồi sau sẽ sự ta tại tất theo thì thế thể
        tôi trên trong trước từ tuy và vẫn vào vì việc về với vậy""",
}  # fmt: skip
_ALIASES = {"nb": "no", "nn": "no"}
_EVERYWHERE = frozenset({"copyright", "www"})  # on many pages of all languages
STOPWORDS = {language: _EVERYWHERE.union(words.split()) for language, words in _LISTS.items()}


def stopwords_of(language: str) -> frozenset[str] | None:
    """Gives the small words of a language, "en" or "pt-br"; None of one that is not known."""
    code = language.partition("-")[0]
    return STOPWORDS.get(_ALIASES.get(code, code))
